"""The exporter's pages and the report in a real browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

import pytest

from mx_demo.fleet import write_fleet
from mx_exporter.cli.main import main
from tests import support
from tests.support import serving
from tests.support.browser import AXE, Browser

#: One worker runs them all, and begins with them: one waits until a rank that was killed is gone.
pytestmark = pytest.mark.long

RANK = ("-m", "mx_demo.rank", "--speed", "60")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("logs") / "fleet"
    write_fleet(out, 3, start=1_700_000_000.0)
    return out


@pytest.fixture(scope="module")
def exporter(
    spawner: support.Spawner, fleet: Path, tmp_path_factory: pytest.TempPathFactory
) -> serving.Exporter:
    """Of a directory with the logs of several pods, which are gone."""
    directory: Path = tmp_path_factory.mktemp("log")
    for path in fleet.rglob("*.jsonl"):
        copy = directory / path.name
        copy.write_bytes(path.read_bytes())
        os.utime(copy, (1, 1))
    return serving.start(spawner, directory, "--retain-seconds", "3600")


@pytest.fixture(scope="module")
def report(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out: Path = tmp_path_factory.mktemp("report") / "loads.html"
    assert main(["report", f"{fleet}/*", "-o", str(out), "--jobs", "1"]) == 0
    return out.as_uri()


@pytest.fixture(scope="module")
def compared(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of two logs."""
    out: Path = tmp_path_factory.mktemp("compared") / "loads.html"
    halves = [str(path) for path in sorted(fleet.iterdir())[:2]]
    assert main(["report", *halves, "-o", str(out), "--jobs", "1"]) == 0
    return out.as_uri()


def start_rank(spawn: support.Spawner, directory: Path, number: int, scenario: str) -> IO[bytes]:
    """A rank in the middle of its transfer, and what it says."""
    env = {
        "MX_METRICS_ENABLED": "1",
        "MX_METRICS_DIR": str(directory),
        "RANK": str(number),
        "POD_NAME": "demo-0",
    }
    process = spawn.python(*RANK, scenario, env=env, stdout=-1)
    said: Any = process.stdout
    assert said.readline() == b"receiving\n"
    return said


def test_a_rank_that_hangs_and_one_that_was_killed(
    spawn: support.Spawner, browser: Browser, tmp_path: Path
) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    exporter = serving.start(spawn, directory)
    address = f"http://{exporter.address}"
    browser.open(f"{address}/")
    assert "likeliest causes" in browser.text
    start_rank(spawn, directory, 6, "hang")
    start_rank(spawn, directory, 7, "killed")
    # What was logged before the page was asked for is on it.
    browser.open(f"{address}/")
    rows = "return [...document.querySelectorAll('table.loads tbody tr')].map(r => r.innerText)"
    running = [row for row in browser.run(rows) if "in receive from" in row]
    assert len(running) == 2
    assert "In progress" in browser.text
    # It loads itself anew, until the one that was killed is gone.
    support.wait_until(lambda: "which never ended" in browser.text)
    text = browser.text
    assert text.index("In progress") < text.index("in receive from") < text.index("Latest loads")
    assert text.index("Latest loads") < text.index("which never ended")
    # Whoever reads slowly can have it stay.
    browser.click("a[href='/?refresh=off']")
    assert browser.run("return document.querySelector('meta[http-equiv=refresh]')") is None
    browser.click("table.loads td.id a")
    assert "running after" in browser.text
    assert "never ended" in browser.text
    assert browser.complaints() == []
    assert {address} == {url[: len(address)] for url in browser.requests() if url[:5] != "data:"}


def test_sorting_and_links_need_no_script(browser: Browser, exporter: serving.Exporter) -> None:
    browser.protocol("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(f"http://{exporter.address}/")
        browser.click("nav a[href='/?sort=seconds']")
        seconds = browser.run(
            "return [...document.querySelectorAll('tbody tr')].map(r => r.cells[4].innerText)"
        )
        numbers = [float(text) for text in seconds if "killed" not in text]
        assert numbers == sorted(numbers, reverse=True)
        assert len(numbers) == 10
        browser.click("table.loads td.id a")
        assert f"success after {max(numbers)} s" in browser.text
        browser.click("main a[href='/']")
        browser.click("footer a[href='/status']")
        assert "The books" in browser.text
    finally:
        browser.protocol("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)], ids=["wide", "narrow"])
@pytest.mark.parametrize("page", ["/", "/?sort=seconds", "/status", "/loads/", "report"])
def test_everybody_can_read_it(
    page: str, width: int, dark: bool, browser: Browser, exporter: serving.Exporter, report: str
) -> None:
    if not AXE.exists():
        support.leave_out("needs axe-core (`make tools`)")
    browser.show_as(dark=dark, width=width)
    address = f"http://{exporter.address}"
    if page == "/loads/":
        page += exporter.get("/loads.json").text.partition('"load_id":"')[2][:12]
    browser.open(report if page == "report" else address + page)
    dark_paper = "return getComputedStyle(document.body).backgroundColor"
    assert browser.run(dark_paper) == ("rgb(21, 24, 28)" if dark else "rgb(255, 255, 255)")
    overflow = "return document.documentElement.scrollWidth - window.innerWidth"
    assert browser.run(overflow) <= 0
    bars = "return [...document.querySelectorAll('svg.bar')].map(b => b.clientWidth)"
    assert page == "/status" or max(browser.run(bars)) > 100
    if page == "report":
        browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.violations() == []
    assert browser.complaints() == []
    found = {url for url in browser.requests() if not url.startswith(("data:", "about:"))}
    assert found
    assert all(url == report or url.startswith(address) for url in found)


def test_a_comparison_keeps_its_columns(browser: Browser, compared: str) -> None:
    """Where it is wider than the window it is scrolled, and not broken into other lines."""
    browser.show_as(width=400)
    browser.open(compared)
    lines = """
        const text = document.querySelector('pre'), look = getComputedStyle(text);
        const padding = parseFloat(look.paddingTop) + parseFloat(look.paddingBottom);
        const drawn = (text.clientHeight - padding) / parseFloat(look.lineHeight);
        return [Math.round(drawn), text.textContent.trim().split('\\n').length];
    """
    drawn, written = browser.run(lines)
    assert drawn == written
    assert browser.run("return document.documentElement.scrollWidth - window.innerWidth") <= 0
    assert browser.run("const box = document.querySelector('.scroll');"
                       "return box.scrollWidth - box.clientWidth") > 0  # fmt: skip
    if AXE.exists():
        assert browser.violations() == []


@pytest.mark.parametrize("page", ["/", "report"])
def test_it_prints(page: str, browser: Browser, exporter: serving.Exporter, report: str) -> None:
    browser.show_as(dark=True)
    browser.open(report if page == "report" else f"http://{exporter.address}{page}")
    made = browser.print()
    assert made.startswith(b"%PDF-")
    assert len(made) > 20_000
    browser.show_as(dark=True, media="print")
    assert browser.run("return getComputedStyle(document.body).backgroundColor") in (
        "rgb(255, 255, 255)",
        "rgba(0, 0, 0, 0)",
    )
    assert browser.run("return getComputedStyle(document.body).color") == "rgb(0, 0, 0)"


def test_a_page_can_neither_run_nor_fetch(browser: Browser, exporter: serving.Exporter) -> None:
    """Its policy holds, should something ever be on it that is not escaped."""
    browser.open(f"http://{exporter.address}/")
    browser.run(
        """
        window.ran = false;
        const script = document.createElement('script');
        script.textContent = 'window.ran = true';
        document.body.append(script);
        const image = new Image();
        image.src = '/metrics?stolen';
        document.body.append(image);
        """
    )
    assert browser.run("return window.ran") is False
    refused = browser.complaints()
    for what in ("script", "image"):
        assert any(what in said and "Content Security Policy" in said for said in refused), what
