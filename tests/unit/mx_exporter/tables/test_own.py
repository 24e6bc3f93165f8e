"""Families of an engine's own events: their page, live and replayed, and after a change."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mx_exporter.core.fold import Fold
from mx_exporter.core.snapshot_codec import dump
from mx_exporter.core.state import State
from mx_exporter.directory.follower import Follower
from mx_exporter.exposition.fold_metrics import state_families
from mx_exporter.exposition.samples import derived_families
from mx_exporter.exposition.text import render
from mx_exporter.offline.fold_logs import fold_logs
from mx_exporter.tables.read import catalog_of, extended, read_families
from mx_log.files import SNAPSHOT_NAME
from tests.support import ROOT, Lines, Spawner, serving
from tests.support.commands import Checked, Run
from tests.support.load_logs import segment
from tests.support.pages import check_metrics, replayed

EXAMPLES = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "own-tables.md").read_text(), re.S)

TABLE = """
[[family]]
name = "engine_step_seconds"
type = "histogram"
help = "Steps."
event = "stepped"
value = "seconds"
buckets = [1, 2.5]
[[family.labels]]
name = "kind"
values = ["a", "b"]
unexpected = "b"
[[family.labels]]
name = "rank"

[[family]]
name = "engine_queue"
type = "gauge"
help = "Length."
event = "stepped"
value = "queue"

[[family]]
name = "engine_up"
type = "gauge"
help = "Up."
events = ["stepped", "process_started"]

[[family]]
name = "engine_sent_total"
type = "counter"
help = "Sent."
event = "sent"
value = "bytes"
zeros = "header"
[[family.labels]]
name = "to"
field = "target"
values = ["disk", "peer"]
drop_unexpected = true
[[family.labels]]
name = "scheme"
"""

PAGE = """\
# HELP engine_step_seconds Steps.
# TYPE engine_step_seconds histogram
engine_step_seconds_bucket{kind="a",le="1.0",rank="0"} 1.0
engine_step_seconds_bucket{kind="a",le="2.5",rank="0"} 1.0
engine_step_seconds_bucket{kind="a",le="+Inf",rank="0"} 2.0
engine_step_seconds_count{kind="a",rank="0"} 2.0
engine_step_seconds_sum{kind="a",rank="0"} 4.0
engine_step_seconds_bucket{kind="b",le="1.0",rank="0"} 0.0
engine_step_seconds_bucket{kind="b",le="2.5",rank="0"} 1.0
engine_step_seconds_bucket{kind="b",le="+Inf",rank="0"} 1.0
engine_step_seconds_count{kind="b",rank="0"} 1.0
engine_step_seconds_sum{kind="b",rank="0"} 2.0
# HELP engine_queue Length.
# TYPE engine_queue gauge
engine_queue 7.0
# HELP engine_up Up.
# TYPE engine_up gauge
engine_up 1.0
# HELP engine_sent_total Sent.
# TYPE engine_sent_total counter
engine_sent_total{scheme="",to="disk"} 3.0
engine_sent_total{scheme="",to="peer"} 0.0
"""


def table(tmp_path: Path, text: str = TABLE) -> str:
    path = tmp_path / "own.toml"
    path.write_text(text)
    return str(path)


def steps(log: Lines) -> list[bytes]:
    return [
        log("stepped", seconds=1, kind="a", queue=3),
        log("stepped", seconds=3.0, kind="a", queue=9),
        log("stepped", seconds=2.0, kind=["no text"], queue=7),
        log("stepped", seconds="long", kind="a", queue="long"),
        log("sent", target="disk", bytes=3),
        log("sent", target="moon", bytes=4),
    ]


def own(page: bytes) -> str:
    return page[page.index(b"# HELP engine") :].decode()


def live(directory: Path, catalog: Any) -> Follower:
    follower = Follower(str(directory), Fold(catalog))
    follower.drain()
    return follower


def page_of(catalog: Any, state: State) -> bytes:
    return render(derived_families(catalog, state))


def test_the_page_of_own_families_live_and_replayed(
    tmp_path: Path, run: Run, promtool: str
) -> None:
    log = Lines()
    (tmp_path / "log").mkdir()
    segment(log, tmp_path / "log", 0, (line for line in [*steps(log)]))
    catalog = catalog_of(table(tmp_path))
    code, out, err = run(tmp_path / "log", catalog=catalog)
    assert (code, own(out)) == (0, PAGE)
    assert "2 observations refused" in err
    assert page_of(catalog, live(tmp_path / "log", catalog).fold.state) == out
    check_metrics(promtool, out)


def test_the_books_close_though_several_families_refuse(tmp_path: Path, checked: Checked) -> None:
    log = Lines()
    lines = [
        *steps(log),
        log("stepped", seconds="long", kind="a", queue=1),
        log("stepped", seconds=1, kind="a", queue="long"),
    ]
    path = segment(log, tmp_path, 0, lines)
    catalog = catalog_of(table(tmp_path))
    state = fold_logs(catalog, (str(path),)).outcome.state
    (book,) = state.books.values()
    assert (book.end, book.refused, book.skipped, book.folded) == (9, 4, 0, 5)
    assert state.refused == {"not_a_number": 3, "unknown_to": 1}
    code, report = checked(path, catalog=catalog)
    assert code == 3
    text = "\n".join(report)
    assert '"seconds" of stepped: the value is no number ("long")' in text
    assert '"to" of sent: the to is not one that the family knows ("moon")' in text


def test_a_restart_with_another_table_says_what_the_snapshot_lacks(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    log = Lines()
    place = tmp_path / "log"
    place.mkdir()
    segment(log, place, 0, steps(log))
    first = catalog_of(table(tmp_path, TABLE[: TABLE.index('[[family]]\nname = "engine_up')]))
    follower = live(place, first)
    (place / SNAPSHOT_NAME).write_bytes(dump(first, follower.fold.state, {log.proc: 0}))
    for path in place.glob("events-*"):
        path.unlink()
    segment(log, place, 1, steps(log))

    same = live(place, first).fold.state
    assert same.series["engine_step_seconds"]["a", "0"].counts == [2, 0, 2]  # type: ignore[union-attr]
    assert "engine" not in caplog.text

    changed = catalog_of(table(tmp_path, TABLE.replace('unexpected = "b"', "")))
    after = live(place, changed).fold.state
    assert after.series["engine_step_seconds"]["a", "0"].counts == [1, 0, 1]  # type: ignore[union-attr]
    assert after.series["engine_queue"][()].value == 7.0  # type: ignore[union-attr]
    lacking = ("engine_step_seconds", "engine_up", "engine_sent_total")
    for name in lacking:
        assert name in caplog.text
    err = run(place, catalog=changed)[2]
    assert f"derived with another table, so {', '.join(lacking)} hold only what is in the" in err


@pytest.mark.parametrize("example", EXAMPLES, ids=["own", "newer client"])
def test_examples_of_the_docs(example: str) -> None:
    extended("own-tables.md", read_families("own-tables.md", example.encode()))


def test_calls_of_a_newer_client_by_position_and_by_name(tmp_path: Path) -> None:
    catalog = extended("f", read_families("f", EXAMPLES[1].encode()))
    log = Lines()
    seconds, skipped = "observe_load_strategy_seconds", "record_load_strategy_skipped"
    calls: list[tuple[str, list[Any], dict[str, Any]]] = [
        (seconds, ["p2p", "success", 2.0], {}),
        (seconds, ["p2p"], {"outcome": "success", "seconds": 3}),
        (seconds, [], {"strategy": "disk", "outcome": "odd", "seconds": 1}),
        (seconds, ["disk"], {}),
        (skipped, ["p2p", "no peer"], {}),
        (skipped, ["p2p"], {"reason": "no peer"}),
        ("record_attempt_s", ["p2p"], {}),
    ]
    lines = [log("recorder_called", recorder=r, args=a, kwargs=k) for r, a, k in calls]
    path = segment(log, tmp_path, 0, lines)
    state = fold_logs(catalog, (str(path),)).outcome.state
    out = page_of(catalog, state).decode()
    for line in (
        'mx_load_strategy_seconds_sum{outcome="success",strategy="p2p"} 5.0',
        'mx_load_strategy_seconds_count{outcome="error",strategy="disk"} 1.0',
        'mx_load_strategy_skipped_total{reason="no peer",strategy="p2p"} 2.0',
    ):
        assert f"\n{line}\n" in out
    assert state.refused == {"missing": 1}
    about = render(state_families(state)).decode()
    assert re.findall(r'calls_unanswered_total\{recorder="(.*)"\} (.*)', about) == [
        ("other", "0.0"),
        ("record_attempt_s", "1.0"),
    ]


def test_an_exporter_and_the_commands_take_the_file(tmp_path: Path, spawn: Spawner) -> None:
    log = Lines()
    (tmp_path / "log").mkdir()
    segment(log, tmp_path / "log", 0, steps(log))
    path = table(tmp_path)
    exporter = serving.start(spawn, tmp_path / "log", env={"MX_METRICS_CATALOG": path})
    page = exporter.get().body
    assert own(page).startswith(PAGE)
    assert replayed(spawn, tmp_path / "log", "--catalog", path) == own_end(page)
    url = f"http://{exporter.address}"
    check = spawn.python(
        *("-m", "mx_exporter", "check", tmp_path / "log", "--catalog", path, "--url", url)
    )
    assert check.result() == 3  # two observations are refused
    assert f"{url}/metrics agrees with the log" in check.output
    printed = spawn.python("-m", "mx_exporter", "catalog", "--catalog", path)
    assert printed.result() == 0
    assert '\nname = "engine_sent_total"\n' in printed.output
    filled = spawn.python(
        *("-m", "mx_exporter", "backfill", tmp_path / "log", "--catalog", path, "-o", "-")
    )
    assert filled.result() == 0, filled.error_output
    assert re.search(r"(?m)^engine_queue 7\.0 \d+$", filled.output)


def own_end(page: bytes) -> bytes:
    """The page without what the exporter says of itself."""
    return page[: page.index(b"# HELP mx_exporter_")]
