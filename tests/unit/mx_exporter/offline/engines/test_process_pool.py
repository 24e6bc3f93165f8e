"""Folding logs in several processes gives the same bytes, and a worker that dies is an error."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from mx_exporter.errors import MxError
from mx_exporter.offline import fold_logs, read_sources
from mx_exporter.offline.engines import process_pool
from tests.support import Lines, Spawner, load_logs, wait_until
from tests.support.commands import Run
from tests.support.folding import replayed_page as page
from tests.support.load_logs import ranks


def test_several_processes_print_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks(tmp_path, processes=7, end=False)
    with (tmp_path / "events-000000000003-1.jsonl").open("ab") as file:
        file.write(b'{"event":')
    alone = page(tmp_path, jobs=1)
    used = []
    real = fold_logs._spread
    monkeypatch.setattr(process_pool, "WORTH_SPREADING", 0)
    monkeypatch.setattr(fold_logs, "_spread", lambda *given: used.append(1) or real(*given))
    assert [page(tmp_path, jobs=jobs) for jobs in (2, 3)] == [alone, alone]
    assert len(used) == 2


def test_a_worker_that_dies_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks(tmp_path)
    parent = os.getpid()
    monkeypatch.setattr(process_pool, "WORTH_SPREADING", 0)
    monkeypatch.setattr(
        read_sources, "read_file", lambda *_, **__: os.getpid() == parent or os._exit(9)
    )
    with pytest.raises(MxError, match="died; try again with --jobs 1"):
        page(tmp_path, jobs=2)


_STUCK = """
import sys, time
from mx_exporter.cli import main as cli
from mx_exporter.offline import fold_logs, read_sources
from mx_exporter.offline.engines import process_pool
process_pool.WORTH_SPREADING = 0
read_sources.read_file = lambda *_, **__: (print("reading", flush=True), time.sleep(1000))
sys.exit(cli.main(["replay", "--jobs", "2", sys.argv[1]]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_the_command(
    number: signal.Signals, tmp_path: Path, spawn: Spawner
) -> None:
    ranks(tmp_path / "log")
    process = spawn.python("-c", _STUCK, tmp_path / "log")
    wait_until(lambda: process.output.count("reading") == 2)
    listing = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    workers = list(map(int, listing.split()))
    assert len(workers) == 2
    process.send_signal(number)
    assert process.result() == (130 if number == signal.SIGINT else -number)
    assert process.error_output.strip() == ""

    def ended(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    wait_until(lambda: all(map(ended, workers)))


def test_files_that_hold_other_writers_than_they_say_are_folded_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ranks(tmp_path)
    right = page(tmp_path)
    paths[-1].rename(tmp_path / "events-ffffffffffff-0.jsonl")
    monkeypatch.setattr(process_pool, "WORTH_SPREADING", 0)
    assert page(tmp_path, jobs=2) == right


def test_a_cap_holds_for_all_cores_together(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        log = Lines(f"{number:012x}", scheme=f"s{number}")
        load_logs.segment(log, tmp_path, 0, [])
    monkeypatch.setattr(process_pool, "WORTH_SPREADING", 0)
    out = run(tmp_path, max_series=2, jobs=2)[1]
    assert out.count(b"mx_build_info{") == 2
    assert run(tmp_path, jobs=2)[1].count(b"mx_build_info{") == 6
