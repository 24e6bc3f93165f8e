"""`mx-metrics check`: its report, and its exit code."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mx_exporter.analysis import check
from mx_exporter.cli import check as check_command
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.decode import Rejected
from mx_exporter.errors import UsageError
from tests.support import Lines, Spawner, envelopes, load_logs
from tests.support.commands import Checked


@pytest.fixture
def run_json(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., tuple[int, Any]]:
    def run(*logs: Path) -> tuple[int, Any]:
        code = check_command.run(tuple(map(str, logs)), as_json=True)
        return code, json.loads(capfdbinary.readouterr().out)

    return run


def test_the_report_of_a_faultless_log_is_short(tmp_path: Path, checked: Checked) -> None:
    log = Lines()
    lines = (log("source_attempted", policy="p", result="r") for _ in range(3))
    path = load_logs.segment(log, tmp_path, 0, lines)
    summary = [
        "4 lines: 4 events, 0 met before, 0 rejected, 0 of others",
        "1 file, 4 events of 1 process: nothing is faulty",
    ]
    assert checked(tmp_path) == (0, summary)
    by_name = f"{path}: 4 events: 1 process_started, 3 source_attempted"
    assert checked(tmp_path, verbose=True) == (0, [by_name, *summary])


def faulty(directory: Path) -> tuple[Path, Path]:
    """Two segments with every kind of fault."""
    log = Lines()
    header = log.header()
    good = log("source_attempted", policy="p", result="r")
    log.seq += 2
    common = {"engine": "vllm", "model_role": "main", "outcome": "success"}
    first = directory / f"events-{log.proc}-0.jsonl"
    first.write_bytes(
        header
        + good
        + b"\n"
        + good
        + log("source_attempted", policy=5, result="r")
        + b"not json\n"
        + b"x" * (3 << 20)
        + b"\n"
        + log("load_finished", seconds=True, **common)
        + log("load_finished", **common)
        + log("load_phase_finished", engine="vllm", phase="lunch", seconds=1)
        + log("artifact_extracted", artifact="other", archive="a", bytes=-1)
        + log("not\nknown", anything=1)
        + b'{"event":"load_st'
    )
    other = Lines("b" * 12, seq=7)
    second = load_logs.segment(other, directory, 2, [])
    return first, second


def test_every_fault_with_its_file_and_line(tmp_path: Path, checked: Checked) -> None:
    first, second = faulty(tmp_path)
    code, report = checked(tmp_path, verbose=True)
    assert code == 3
    not_json = CATALOG.decoder.decode_line(b"not json")
    assert isinstance(not_json, Rejected)
    assert report == [
        f"{first}: 8 events (1 not known, 1 met before): 1 artifact_extracted, 2 load_finished, "
        "1 load_phase_finished, 1 not\\nknown, 1 process_started, 2 source_attempted",
        f'{first} line 5: rejected, wrong_type: "policy" of source_attempted is an integer (5); '
        "expected text",
        f"{first} line 6: rejected, not_json: {not_json.detail}",
        f"{first} line 7: rejected, too_long: the line is longer than 1 MiB",
        f'{first} line 8: refused, boolean: "seconds" of load_finished: the value is a boolean '
        "(true)",
        f'{first} line 9: refused, missing: "seconds" of load_finished: the value is missing or '
        "null (null)",
        f'{first} line 10: refused, unknown_phase: "phase" of load_phase_finished: the phase is '
        'not one that the family knows ("lunch")',
        f'{first} line 11: refused, negative: "bytes" of artifact_extracted: a counter only '
        "grows, and the amount is negative (-1)",
        f"{first} line 13: rejected, torn: the last line of a finished file has no end and is no "
        "whole event",
        f"{second}: 1 event: 1 segment_continued",
        "process aaaaaaaaaaaa: 2 events lost of 10, seq 2-3",
        "process bbbbbbbbbbbb: 7 events lost of 8, seq 0-6 (its segments 0-1 are not among these "
        "logs)",
        "13 lines: 8 events, 1 met before, 4 rejected, 0 of others",
        "2 files, 9 events of 2 processes: 4 lines rejected, 4 observations refused, 9 events lost",
    ]


def test_the_same_as_json(tmp_path: Path, run_json: Callable[..., tuple[int, Any]]) -> None:
    first, _ = faulty(tmp_path)
    code, report = run_json(tmp_path)
    assert code == 3
    assert report["faulty"] is True
    file = report["files"][0]
    assert file["path"] == str(first)
    assert file["events"]["load_finished"] == 2
    assert file["rejected"] == {"wrong_type": 1, "not_json": 1, "too_long": 1, "torn": 1}
    assert file["refused"] == {"boolean": 1, "missing": 1, "unknown_phase": 1, "negative": 1}
    assert (file["not_known"], file["duplicates"], file["problem"]) == (1, 1, None)
    assert [fault["line"] for fault in file["faults"]] == [5, 6, 7, 8, 9, 10, 11, 13]
    assert file["faults"][0] == {
        "line": 5,
        "kind": "rejected",
        "reason": "wrong_type",
        "detail": '"policy" of source_attempted is an integer (5); expected text',
    }
    assert report["processes"][0] == {
        "proc": "a" * 12,
        "logged": 10,
        "folded": 2,
        "refused": 4,
        "skipped": 1,
        "rejected": 1,
        "lost": 2,
        "lost_ranges": [[2, 3]],
        "alive": False,
    }
    for process in report["processes"]:
        parts = ("folded", "refused", "skipped", "rejected", "lost")
        assert process["logged"] == sum(process[part] for part in parts)


@pytest.mark.parametrize("first", ["good", "bad"])
def test_a_rejected_line_whose_number_another_line_gives_well_is_no_fault(
    first: str, tmp_path: Path, run_json: Callable[..., tuple[int, Any]]
) -> None:
    for name, result in (("good", "complete"), ("bad", 5)):
        line = Lines()("nixl_received", result=result)
        (tmp_path / f"{int(name != first)}-{name}").write_bytes(line)
    code, report = run_json(*sorted(tmp_path.iterdir()))
    assert (code, report["faulty"]) == (0, False)
    for file in report["files"]:
        assert (file["rejected"], file["faults"]) == ({}, [])
    assert sum(file["duplicates"] for file in report["files"]) == 1


def test_a_rejected_line_that_is_met_twice_is_one_fault(tmp_path: Path, checked: Checked) -> None:
    bad = Lines()("nixl_received", result=5)
    for name, lines in (("0", bad), ("1", bad + bad)):
        (tmp_path / name).write_bytes(lines)
    detail = '"result" of nixl_received is an integer (5); expected text'
    assert checked(tmp_path / "0", tmp_path / "1") == (
        3,
        [
            f"{tmp_path / '0'} line 1: rejected, wrong_type: {detail}",
            f"{tmp_path / '0'}: 1 line, which is no event",
            f"{tmp_path / '1'}: 2 lines, none an event",
            "3 lines: 0 events, 2 met before, 1 rejected, 0 of others",
            "2 files, 0 events of 1 process: 1 line rejected",
        ],
    )


@pytest.mark.parametrize("fault", ["none", "rejected", "refused", "lost"])
def test_each_kind_of_fault_alone_is_enough(fault: str, tmp_path: Path, checked: Checked) -> None:
    log = Lines()
    lines = [log.header(), log("sources_ordered", policy="p", seconds=1)]
    if fault == "rejected":
        lines.append(b'{"event":"x","proc":5}\n')
    elif fault == "refused":
        lines.append(log("sources_ordered", policy="p", seconds="1"))
    elif fault == "lost":
        del lines[0]
    (tmp_path / "log").write_bytes(b"".join(lines))
    assert checked(tmp_path / "log")[0] == (0 if fault == "none" else 3)


def test_a_refused_event_is_told_of_where_it_stood_first(tmp_path: Path) -> None:
    log = Lines()
    bad = [log("sources_ordered", policy="p", seconds=seconds) for seconds in ("1", "nan")]
    good = log("sources_ordered", policy="p", seconds=1)
    path = tmp_path / "log"
    path.write_bytes(b"".join([bad[0], good, bad[0], b"\n", bad[1], bad[0], bad[1], good]))
    (report,) = check.examine(CATALOG, (str(path),)).files
    told = [(fault.line, fault.reason) for fault in report.faults]
    assert told == [(1, "not_a_number"), (5, "not_finite")]
    assert report.duplicates == 4


def test_many_faults_are_counted(tmp_path: Path, checked: Checked) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"event":"x\n' * 1000 + b'{"event":"x","seq":0}\n' * 5)
    code, report = checked(path)
    assert code == 3
    assert len(report) == 104
    assert report[100] == f"{path}: 905 more such lines; in all 1000 not_json, 5 wrong_type"


def test_a_report_of_many_files_is_a_page(tmp_path: Path, checked: Checked) -> None:
    for number in range(300):
        (tmp_path / f"{number:03}.log").write_bytes(b'{"event":"x\n')
    code, report = checked(tmp_path / "*.log")
    assert code == 3
    assert len(report) == 106
    assert report[102] == "198 more such lines about files; -v shows all"
    assert len(checked(tmp_path / "*.log", verbose=True)[1]) == 603


def test_recorders_that_nothing_answers(tmp_path: Path, checked: Checked) -> None:
    log = Lines()
    calls = ["record_nixl_recieve", "record_nixl_recieve", "frobnicate"]
    path = tmp_path / "log"
    path.write_bytes(b"".join(log("recorder_called", recorder=name) for name in calls))
    assert checked(path)[1][:2] == [
        "no family answers record_nixl_recieve x2: did you mean record_nixl_receive?",
        "no family answers frobnicate x1",
    ]


def test_shipped_twice_is_no_fault(tmp_path: Path, checked: Checked) -> None:
    for path in load_logs.ranks(tmp_path):
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
    code, report = checked(tmp_path)
    assert code == 0
    assert report[-1].endswith("of 3 processes: nothing is faulty")
    assert report[0] == "300 lines: 150 events, 150 met before, 0 rejected, 0 of others"


@pytest.mark.parametrize("wrap", [envelopes.cri, envelopes.docker])
def test_what_a_teeing_exporter_says_of_itself_is_no_fault(
    wrap: Callable[..., bytes], tmp_path: Path, checked: Checked
) -> None:
    lines = load_logs.lines_of(load_logs.ranks(tmp_path / "log"))
    said = wrap([b"2026-01-02T03:04:05.000Z INFO listening on *:9402"], stream="stderr")
    node = tmp_path / "node.log"
    node.write_bytes(said + wrap(lines) + said)
    code, report = checked(node)
    assert code == 0
    assert report[-1].endswith(" of 3 processes: nothing is faulty")
    node.write_bytes(wrap(lines) + said.replace(b"stderr", b"stdout"))
    assert checked(node)[0] == 0


def test_the_end_of_a_log_that_is_being_written_is_no_fault(
    tmp_path: Path, checked: Checked
) -> None:
    (path,) = load_logs.ranks(tmp_path, processes=1, segments=1)
    with path.open("ab") as file:
        file.write(b'{"event":"load_st')
        fcntl.flock(file, fcntl.LOCK_EX)
        assert checked(tmp_path)[0] == 0
    code, report = checked(tmp_path)
    assert code == 3
    assert report[-1].endswith("1 line rejected")


def test_what_cannot_be_read_whole_is_a_fault_and_what_is_not_ours_none(
    tmp_path: Path, checked: Checked
) -> None:
    (path,) = load_logs.ranks(tmp_path, processes=1, segments=1)
    os.mkfifo(tmp_path / "events-bbbbbbbbbbbb-0.jsonl")
    code, report = checked(tmp_path)
    assert code == 0
    assert report[0] == f"{tmp_path}/events-bbbbbbbbbbbb-0.jsonl: is no regular file, left alone"
    packed = Path(f"{path}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes())[:-4])
    path.unlink()
    code, report = checked(tmp_path)
    assert code == 3
    assert report[0] == f"{packed}: the gzip data ends in the middle"
    assert report[-1].endswith("of 1 process: 1 file not read whole")


def test_control_characters_of_a_log_are_escaped(tmp_path: Path, checked: Checked) -> None:
    log = Lines("\x1b[31m")
    path = tmp_path / "log"
    path.write_bytes(log("\x1b[2J", x=1) + log("load_started", engine="\x1b\n", model_role=1))
    log.seq += 1
    with path.open("ab") as file:
        file.write(log("y"))
    report = "".join(checked(path)[1])
    assert "\x1b" not in report
    assert report.isprintable()


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: no such file or directory"):
        check_command.run((str(tmp_path / "nowhere"),))


def test_exit_codes(tmp_path: Path, spawn: Spawner) -> None:
    load_logs.ranks(tmp_path / "good")
    (tmp_path / "bad").write_bytes(b"junk\n")
    codes = [
        spawn.python("-m", "mx_exporter", "check", *options, tmp_path / log).result()
        for log in ("good", "bad", "missing")
        for options in ([], ["--json"])
    ]
    assert codes == [0, 0, 3, 3, 2, 2]
