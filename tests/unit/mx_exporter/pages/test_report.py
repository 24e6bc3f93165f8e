"""The report: what it says of loads, and that it stays bounded and harmless."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

import pytest

from mx_exporter.loads.model import Load, Process, Span
from mx_exporter.pages.report import Input, Sources, pieces
from mx_exporter.pages.standout import standing_out
from mx_exporter.pages.sums import Sums
from tests.support.html import Page
from tests.support.some_loads import a_load, a_load_of, an_attempt

from .test_front import HOSTILE

SOURCES = Sources(
    [Input("a.jsonl", 1500, "0" * 64)],
    [("events logged", "7"), ("lost", "0")],
    ["b.jsonl: it is damaged"],
    "mx-metrics report a.jsonl -o x.html",
    "made on a day",
)


def sums_of(loads: Iterable[Load], worst: int = 1000) -> Sums:
    sums = Sums(worst)
    sums.add_all(loads)
    return sums


def html_of(loads: Iterable[Load], sources: Sources = SOURCES) -> str:
    return "".join(pieces(sums_of(loads), sources))


def words(html: str) -> str:
    return " ".join(Page(re.sub(r"</(td|th|li|p|summary)>", r" </\1>", html)).text.split())


def timed_out(peer: str, seconds: float, at: float = 0.0) -> object:
    return an_attempt(
        peer=peer,
        at=at,
        seconds=seconds,
        result="transfer_retry",
        error_type="TransferFailed",
        error="timed out",
        phases=(Span(name="receive", at=at, seconds=seconds, error_type="TransferFailed"),),
    )


def test_what_stands_out() -> None:
    loads = [a_load(n) for n in range(10)]
    loads.append(
        a_load(
            3,
            load_id="slow",
            process=Process(proc="slow", pod="llama-1"),
            seconds=100.0,
            phases=(Span(name="chain", at=0.0, seconds=100.0),),
            attempts=(timed_out("worker-1", 34.0), timed_out("worker-2", 34.4, 34.0)),
        )
    )
    loads.append(
        a_load(
            7,
            load_id="dead",
            outcome="killed",
            seconds=None,
            ended=None,
            phases=(Span(name="chain", at=4.0, seconds=None),),
            attempts=(an_attempt(seconds=None, result=None, at=5.0, phases=(
                Span(name="receive", at=5.0, seconds=None),)),),
        )
    )  # fmt: skip
    assert standing_out(sums_of(loads)) == [
        "rank 7 of pod-1 was killed in receive from worker-1 after 10.0 s.",
        "rank 3 of llama-1 lost 68.4 s to 2 failed attempts.",
        "1 load that succeeded went on without a peer, for 31.6 s in all.",
        "worker-2: 0 of 1 attempt succeeded, 34.4 s lost.",
        "worker-1: 10 of 12 attempts succeeded, 34.0 s lost.",
    ]


def test_nothing_stands_out_of_loads_that_are_alike() -> None:
    assert standing_out(sums_of(a_load(n) for n in range(20))) == []


def test_a_slow_node_stands_out() -> None:
    def on(node: str, seconds: float) -> list[Load]:
        process = Process(proc="p", pod="pod", node=node)
        phase = (Span(name="model_init", at=0.0, seconds=seconds),)
        return [a_load(n, process=process, seconds=seconds, phases=phase, attempts=())
                for n in range(4)]  # fmt: skip

    (sentence,) = standing_out(sums_of([*on("a", 10.0), *on("b", 11.0), *on("c", 30.0)]))
    assert sentence == "c is slow: a median of 30.0 s over 4 loads, 2.7 times that of all."


def test_sums_and_tables_are_exact() -> None:
    loads = [
        a_load(n, seconds=float(n + 1), phases=(Span(name="chain", at=0.0, seconds=float(n + 1)),))
        for n in range(100)
    ]
    loads[0] = a_load(0, outcome="error", error_type="Broken", error="no room", attempts=())
    text = words(html_of(loads))
    assert "100 loads of 1 pod" in text
    assert "1 + 0 failed, killed" in text
    assert "example/model whole loads, successes 99 51.0 90.2 95.1 99.0 100.0" in text
    assert "Broken: no room 1 0 0 load-0" in text
    assert "worker-1 1/1" in text
    assert "99/99 1.0" in text


def test_last_comes_what_it_was_made_of() -> None:
    text = words(html_of([a_load()]))
    for said in (
        "a.jsonl 1.5 kB " + "0" * 64,
        "events logged 7",
        "b.jsonl: it is damaged",
        "mx-metrics report a.jsonl -o x.html",
    ):
        assert said in text


def test_no_load_at_all() -> None:
    text = words(html_of([]))
    assert "There is no load in these logs." in text
    assert "b.jsonl: it is damaged" in text


def test_the_worst_come_first_and_are_explained() -> None:
    fine, slow, bad = (
        a_load(1, process=Process(proc="a", pod="fine")),
        a_load(2, process=Process(proc="b", pod="slow"), seconds=99.0),
        a_load(3, process=Process(proc="c", pod="bad"), outcome="error", error_type="Broken"),
    )
    html = html_of([fine, slow, bad])
    text = words(html)
    assert text.index("bad, node") if "bad, node" in text else text.index("bad:")
    assert text.index("bad:") < text.index("slow:") < text.index("fine:")
    page = Page(html)
    anchors = {value for _, name, value in page.attributes if name == "id"}
    assert {link.removeprefix("#") for link in page.links} <= anchors
    assert len([link for link in page.links if link.startswith("#load-")]) == 3


def test_ten_thousand_pods_stay_within_two_megabytes() -> None:
    def loads() -> Iterable[Load]:
        for n in range(10_000):
            process = Process(proc=f"{n:012x}", pod=f"pod-{n}", node=f"node-{n % 50}")
            yield a_load(n % 8, process=process, load_id=f"{n:012x}", seconds=10 + n / 1000)

    html = html_of(loads())
    assert 1_000_000 < len(html.encode()) < 2_000_000
    text = words(html)
    assert "10000 loads of 10000 pods" in text
    assert re.search(r"\d+ loads that went better, and \d+ pods that had no worse ones", text)
    links = [link for link in Page(html).links if link.startswith("#load-")]
    assert 100 < len(links) < 1000


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_a_log_says_is_text(text: str) -> None:
    sources = Sources([Input(text, None, text)], [(text, text)], [text], text, text)
    loads = [
        a_load_of(text, outcome=outcome, first_seq=n)
        for n, outcome in enumerate(("error", "killed", "success", "unknown"))
    ]
    html = "".join(pieces(sums_of(loads), sources, compared=[text]))
    assert len(html) < 300_000
    page = Page(html)
    assert not page.tags & {"script", "img", "b", "iframe", "object", "form", "base"}
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert all(link.startswith("#load-") for link in page.links)
    unseen = {c for c in html if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert unseen <= {"\n"}


def test_many_hostile_loads_stay_within_two_megabytes() -> None:
    loads = [a_load_of(f"{n} " + "<&>" * 1000, outcome="error") for n in range(300)]
    assert len(html_of(loads).encode()) < 2_000_000
