"""A real browser, driven by the WebDriver protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests import support

_TOOLS = support.ROOT / ".venv" / "tools"
_LIBRARIES = _TOOLS / "usr" / "lib" / "x86_64-linux-gnu"

#: Where the parts of a browser may be: brought by `make tools`, or installed.
_CHROMIUM = (_TOOLS / "usr/lib/chromium/chromium", Path("/usr/lib/chromium/chromium"))

#: The rules of accessibility that a page is held to.
AXE = _TOOLS / "axe" / "axe.min.js"

#: A page loads itself anew only while something runs, and a link on it ends that.
_NOT_RULES = ("meta-refresh",)


class Browser:
    """One window.

    :param home: where it keeps what it keeps.
    """

    def __init__(self, spawn: support.Spawner, home: Path) -> None:
        driver, program = support.tool("chromedriver"), _program()
        port = support.free_port()
        paths = [str(_LIBRARIES), str(_LIBRARIES / "pulseaudio")]
        self._driver = spawn(
            driver,
            f"--port={port}",
            env={"LD_LIBRARY_PATH": ":".join(paths), "HOME": str(home), "TMPDIR": str(home)},
        )
        self._address = f"http://127.0.0.1:{port}"
        support.wait_until(self._ready)
        options = {
            "binary": str(program),
            "args": [
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--hide-scrollbars",
                "--disable-background-networking",
                "--window-size=1280,1000",
                f"--user-data-dir={home / 'profile'}",
            ],
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        started = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{started['sessionId']}"

    def _ready(self) -> bool:
        assert self._driver.poll() is None, self._driver.error_output
        try:
            return bool(self._ask("GET", "/status")["ready"])
        except (urllib.error.URLError, OSError):
            return False

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._address + path, data, {"content-type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()) from None

    def _do(self, command: str, **body: Any) -> Any:
        return self._ask("POST", f"{self._session}/{command}", body)

    def open(self, address: str) -> None:
        """Go to a page, and wait until it is there."""
        self._do("url", url=address)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self._do("execute/sync", script=script, args=list(arguments))

    def run_until_done(self, script: str, *arguments: Any) -> Any:
        """What a script calls its last argument with."""
        return self._do("execute/async", script=script, args=list(arguments))

    @property
    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def click(self, selector: str) -> None:
        """Click on what a selector of CSS finds first."""
        found = self._do("element", using="css selector", value=selector)
        self._do(f"element/{next(iter(found.values()))}/click")

    def protocol(self, command: str, **parameters: Any) -> Any:
        """A command of the browser's own protocol."""
        return self._do("goog/cdp/execute", cmd=command, params=parameters)

    def show_as(
        self, *, dark: bool = False, media: str = "", width: int = 1280, height: int = 1000
    ) -> None:
        """How pages are shown."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.protocol("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.protocol(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def print(self) -> bytes:
        """The page as a PDF."""
        return base64.b64decode(self._do("print"))

    def screenshot(self) -> bytes:
        """The page as a PNG, as far as it is seen."""
        return base64.b64decode(self._ask("GET", f"{self._session}/screenshot"))

    def complaints(self) -> list[str]:
        """What the console said since it was asked last."""
        return [entry["message"] for entry in self._do("se/log", type="browser")]

    def requests(self) -> set[str]:
        """The addresses that were asked for since it was asked last."""
        found = set()
        for entry in self._do("se/log", type="performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.add(message["params"]["request"]["url"])
        return found

    def violations(self) -> list[str]:
        """What axe finds on the page that is serious, each with the element that it is in."""
        self.run(AXE.read_text())
        found = self.run_until_done(
            "const [options, done] = arguments; "
            "axe.run(options).then(found => done(found.violations))",
            {"rules": {name: {"enabled": False} for name in _NOT_RULES}},
        )
        return [
            f"{each['impact']}: {each['id']}: {node['html'][:200]}: {node['failureSummary']}"
            for each in found
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    def close(self) -> None:
        with contextlib.suppress(AssertionError, OSError):
            self._ask("DELETE", self._session)
        self._driver.end()


def _program() -> Path:
    for place in _CHROMIUM:
        if os.access(place, os.X_OK):
            return place
    support.leave_out("needs chromium (`make tools`)")
