"""The page of the loads, and that of one load."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest

from mx_exporter.config import Directory, Settings
from mx_exporter.directory.diagnosis import Diagnosis
from mx_exporter.loads.listing import Kept
from mx_exporter.loads.model import Load, Span
from mx_exporter.pages import front, load
from mx_exporter.pages.status import Seen, Standing
from tests.support.html import Page
from tests.support.some_loads import a_load, a_load_of, an_attempt

SEEN = Seen(*[0] * 12, "", 0.0, 0, 0, "", "", "owner (compacts)")

#: What a log may hold to break a page, to run something, or to be read as something else.
HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'); alert(1); ('",
    "</style><b>{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;&amp;",
    "\u202egnp.exe\u2066x\u2069\u200f\u061c",
    "".join(map(chr, range(32))) + "\x7f\x9f\ufeff\u2028",
    "a" * 1_000_000,
    "\U0001f600\u0000" * 1000,
    "../../etc/passwd?x=1#y/\\",
    "",
]  # fmt: skip


def standing(seen: Seen | None = SEEN, state: str = "segments") -> Standing:
    return Standing(
        lambda: Diagnosis("/logs", state),
        None if seen is None else lambda: seen,
        Settings(Directory("/logs of mine", named=True)),
    )


def _must_not_fail(section: str, error: Exception) -> None:
    raise AssertionError(section) from error


def shown(
    over: Sequence[Load] = (), running: Sequence[Load] = (), sort: str = "", **more: Any
) -> Page:
    kept = Kept(over, running, **more)
    page = front.page(standing(), kept, {"sort": sort} if sort else {}, _must_not_fail)
    return Page(page.decode())


def running(number: int, seconds: float, phase: str = "chain") -> Load:
    return a_load(
        number,
        ended=None,
        seconds=None,
        outcome="running",
        last=f"2026-07-01T22:53:{seconds - 2:09.6f}Z",
        phases=(Span(name=phase, at=0.0, seconds=None),),
        attempts=(),
    )


def test_loads_in_progress_come_first_and_the_stuck_are_flagged() -> None:
    over = [a_load(n) for n in range(3)]
    page = shown(over, [running(7, 17.0), running(8, 19.0), running(9, 20.0, "else")])
    assert page.text.index("In progress") < page.text.index("Latest loads")
    rows = re.findall(r"load-([789])\s+([\d.]+)\s+(\w+), [\d.]+ s\s*(stuck)?", page.text)
    # Longer than three times the median, and than any before; of `else` none has ended.
    assert rows == [
        ("7", "17.0", "chain", ""),
        ("8", "19.0", "chain", "stuck"),
        ("9", "20.0", "else", ""),
    ]
    assert ("meta", "http-equiv", "refresh") in page.attributes
    assert ("meta", "http-equiv", "refresh") not in shown(over).attributes


def test_starts_come_newest_first_with_their_bars_and_whys() -> None:
    old = a_load(1, began="2026-07-01T22:00:00.000000Z")
    failed = an_attempt(
        result="transfer_retry", peer="worker-9", at=4.0, seconds=5.0, error="timed out"
    )
    new = a_load(1, load_id="new", attempts=(failed, an_attempt(at=9.0, seconds=1.0)))
    page = shown([old, new])
    assert page.text.index("new") < page.text.index("load-1")
    assert "worker-9 timed out (5.0 s)" in page.text
    labels = [value for tag, name, value in page.attributes if name == "aria-label"]
    assert "model_init 4.0 s, failed attempt 5.0 s, from a peer 1.0 s" in labels
    assert "/loads/new" in page.links
    for tile in ("10.0 s", "median of 2", "1 of 3", "attempts failed", "0 + 0"):
        assert tile in page.text


def test_sorted_by_a_link() -> None:
    loads = [
        a_load(1, load_id="fast", seconds=1.0),
        a_load(2, load_id="slow", seconds=50.0),
        a_load(3, load_id="bad", seconds=2.0, outcome="error"),
    ]

    def order(sort: str) -> list[str]:
        page = shown(loads, sort=sort)
        return [link.removeprefix("/loads/") for link in page.links if link.startswith("/loads/")]

    assert order("seconds") == ["slow", "bad", "fast"]
    assert order("result") == ["bad", "fast", "slow"]
    assert order("pod") == ["fast", "slow", "bad"]
    assert order("nonsense") == order("")
    assert ("th", "aria-sort", "descending") in shown(loads, sort="seconds").attributes
    assert {"/", "/?sort=seconds", "/?sort=pod", "/?sort=result"} < set(shown(loads).links)


def test_what_is_not_listed_is_said() -> None:
    text = shown([a_load()], before=3, compacted=1000).text
    assert "3 older loads are not listed" in text
    assert "A snapshot stands for 1000 events" in text
    assert "No load was logged yet" in shown().text


def test_the_page_names_the_commands() -> None:
    text = shown([a_load()]).text
    assert "mx-metrics explain LOAD '/logs of mine'" in text
    page = Page(load.page("load-0", [a_load()], "/logs of mine").decode())
    assert "mx-metrics explain load-0 '/logs of mine'" in page.text
    assert "mx-metrics events --load load-0 '/logs of mine'" in page.text


def test_a_load_is_explained() -> None:
    failed = an_attempt(
        result="transfer_retry",
        peer="worker-9",
        at=4.0,
        seconds=4.0,
        phases=(Span(name="receive", at=4.5, seconds=3.5, error_type="Slow", error="timed out"),),
    )
    html = load.page("x", [a_load(attempts=(failed,))], "/logs").decode()
    words = " ".join(Page(html.replace("</td>", " </td>")).text.split())
    assert "4.0 4.0 attempt 1: worker-9 transfer_retry" in words
    assert "4.5 3.5 receive Slow: timed out 35 %" in words
    assert "8.0 2.0 no event says what ran here: the chain went on without a peer 20 %" in words


def test_a_load_that_is_not_kept() -> None:
    page = Page(load.page("gone", [], "/logs").decode())
    assert "not among those that are kept" in page.text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_a_log_says_is_text(text: str) -> None:
    over = a_load_of(text, outcome="error")
    open_ = a_load_of(text, outcome="running", seconds=None)
    for made in (
        front.page(standing(), Kept([over], [open_]), {}, _must_not_fail),
        front.page(standing(), Kept([over], [open_]), {"sort": "seconds"}, _must_not_fail),
        load.page(text, [over, open_], text),
    ):
        assert len(made) < 100_000
        html = made.decode()
        page = Page(html)
        assert not page.tags & {"script", "img", "b", "iframe", "object", "form", "base"}
        assert not [name for _, name, _ in page.attributes if name.startswith("on")]
        assert all(link.startswith("/") and "\\" not in link for link in page.links)
        unseen = {c for c in html if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
        assert unseen <= {"\n"}
        if "7 * 7" in text:
            assert text in page.text
        if text.startswith("<script>"):
            assert text in page.text
        if text.startswith("\u202e"):
            assert "\\u202egnp.exe" in page.text
