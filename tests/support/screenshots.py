"""Makes the pictures of docs/looking.md: ``make screenshots``."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from mx_demo.fleet import write_fleet
from mx_exporter.cli.main import main
from tests import support
from tests.support import serving
from tests.support.browser import Browser

IMAGES = support.ROOT / "docs" / "images"

#: Seconds ago that the first pod of the logs began: the load that hangs does for long by now.
SINCE = 1300.0


def take(home: Path, stack: ExitStack) -> None:
    """Take them all."""
    spawner = support.Spawner(home / "processes")
    stack.callback(spawner.end)
    fleet, directory = home / "fleet", home / "mx-metrics"
    write_fleet(fleet, 6, start=time.time() - SINCE)
    directory.mkdir()
    hanging = max(fleet.glob("engine-5/*"), key=_hangs)
    for path in fleet.rglob("*.jsonl"):
        copy = directory / path.name
        copy.write_bytes(path.read_bytes())
        os.utime(copy, (1, 1))
    # Whoever holds the lock lives.
    held = os.open(directory / hanging.name, os.O_RDONLY)
    stack.callback(os.close, held)
    fcntl.flock(held, fcntl.LOCK_EX)
    exporter = serving.start(spawner, directory, "--retain-seconds", "3600")
    assert main(["report", f"{fleet}/*", "-o", str(home / "loads.html")]) == 0
    browser = Browser(spawner, home)
    stack.callback(browser.close)
    address = f"http://{exporter.address}"
    slowest = exporter.get("/?sort=seconds").text.rpartition("In progress")[2]
    load_id = slowest.partition('id="latest"')[2].partition('href="/loads/')[2][:12]
    for name, page, height in (
        ("page", f"{address}/", 900),
        ("load", f"{address}/loads/{load_id}", 760),
        ("report", (home / "loads.html").as_uri(), 1300),
    ):
        browser.show_as(width=1100, height=height)
        browser.open(page)
        (IMAGES / f"{name}.png").write_bytes(browser.screenshot())


def _hangs(path: Path) -> tuple[bool, str]:
    text = path.read_text()
    return "load_finished" not in text, text[-30:]


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made, ExitStack() as closing:
        take(Path(made), closing)
