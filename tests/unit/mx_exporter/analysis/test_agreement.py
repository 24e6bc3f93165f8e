"""`mx-metrics check --url`: whether the page of an exporter agrees with its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mx_exporter.analysis.agreement import compare, scrape
from mx_exporter.cli.main import main
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.state import State
from mx_exporter.errors import MxError
from tests import support
from tests.support import Lines, Spawner, serving
from tests.support.folding import derived_page, fold
from tests.support.load_logs import ranks
from tests.support.pages import parse

KEY = ("mx_nixl_receive_total", (("result", "complete"), ("scheme", "")))


def state(received: int, *, gone: bool = False) -> State:
    log = Lines()
    lines = [log.header(), log("load_started", engine="vllm", model_role="main", load_id="l")]
    lines += [log("nixl_received", result="complete") for _ in range(received)]
    return fold(lines, gone=gone).state


def samples(received: int, *, gone: bool = False) -> Any:
    return dict(parse(derived_page(state(received, gone=gone)).decode()))


@pytest.mark.parametrize(
    ("before", "log", "after", "agrees"),
    [
        (2, 2, 2, True),
        (1, 2, 3, True),
        (1, 3, 3, True),
        (2, 1, 3, False),
        (1, 3, 2, False),
    ],
)
def test_what_only_grows_lies_between(before: int, log: int, after: int, agrees: bool) -> None:
    found = compare(CATALOG, "u", samples(before), state(log), samples(after))
    assert (not found.differences) is agrees
    assert [(d.exporter, d.log) for d in found.differences] == ([] if agrees else [(after, log)])


def test_a_load_is_in_progress_to_one_and_abandoned_to_the_other() -> None:
    page = samples(1)
    found = compare(CATALOG, "u", page, state(1, gone=True), page)
    assert found.differences == []
    loads = [key for key in page if "in_progress" in key[0]]
    (key,) = [key for key in loads if page[key]]
    page[key] = 2.0
    (found_one,) = compare(CATALOG, "u", page, state(1), page).differences
    assert str(found_one).startswith("loads in progress or abandoned{engine=")
    assert str(found_one).endswith(": 2.0 on the page, 1.0 by the log")


def test_gauges_are_compared_while_nothing_comes_in() -> None:
    page, logged = samples(1), ("mx_exporter_events_logged_total", ())
    other = {key: 7.0 if key[0] == "mx_build_info" else v for key, v in page.items()}
    (found,) = compare(CATALOG, "u", other, state(1), other).differences
    assert found.sample.startswith("mx_build_info{")
    later = {**other, logged: 9.0}
    moved = compare(CATALOG, "u", other, state(1), later)
    assert (moved.moved, moved.differences) == (True, [])


def test_series_that_one_has_alone() -> None:
    page = samples(1)
    less = {key: value for key, value in page.items() if key != KEY}
    (found,) = compare(CATALOG, "u", less, state(1), less).differences
    assert (found.exporter, found.log) == (None, 1.0)
    more = {**page, ("own_total", ()): 3.0}
    (found,) = compare(CATALOG, "u", more, state(1), more).differences
    assert str(found) == "own_total: 3.0 on the page, none by the log"
    # An exporter with a cap says of which family it leaves series out.
    hidden = ("mx_exporter_series_refused_total", (("family", "mx_nixl_receive_total"),))
    capped = {**less, hidden: 1.0}
    assert compare(CATALOG, "u", capped, state(1), capped).differences == []


def test_a_live_exporter(
    tmp_path: Path, spawn: Spawner, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    ranks(log, end=False)
    exporter = serving.start(spawn, log, "--source-id-label")
    url = f"http://{exporter.address}"
    assert main(["check", "--url", url, str(log)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"{url}/metrics agrees with the log: ")
    other = tmp_path / "other"
    ranks(other, processes=2)
    assert main(["check", "--url", f"{url}/metrics", str(other), "--json"]) == 3
    found = json.loads(capsys.readouterr().out)["exporter"]
    assert found["url"] == f"{url}/metrics"
    named = {one["sample"].partition("{")[0] for one in found["differences"]}
    assert "mx_load_seconds_count" in named
    assert main(["check", "--url", url, str(other)]) == 3
    assert f"{url}/metrics differs from the log in" in capsys.readouterr().out


def test_a_page_that_cannot_be_had() -> None:
    url = f"http://127.0.0.1:{support.free_port()}"
    with pytest.raises(MxError, match="/metrics: the page cannot be had: Connection refused"):
        scrape(url)
