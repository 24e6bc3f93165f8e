"""`mx-metrics replay`: what it prints, and that it is what the live exporter serves."""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import pty
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import zstandard

from mx_exporter.config import SOURCE_ID_WARNING
from mx_exporter.core.builtin import CATALOG
from mx_exporter.errors import MxError, UsageError
from mx_exporter.exposition import text
from mx_exporter.offline import fold_sources, writers
from mx_exporter.offline.engines import process_pool
from mx_exporter.offline.sources import find
from mx_exporter.offline.writers import survey
from tests.support import ROOT, Lines, Spawner, clean_environment, envelopes, load_logs, wait_until
from tests.support.commands import Run
from tests.support.envelopes import ENVELOPES
from tests.support.folding import live_page
from tests.support.folding import replayed_page as page
from tests.support.load_logs import ranks

GOLDEN = sorted(path.parent for path in (ROOT / "tests" / "golden").glob("*/expected.om"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """The file's writer lives."""
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


# --------------------------------------------------------------------------------------
# Equal to what is served


def test_prints_what_the_live_exporter_serves(tmp_path: Path, run: Run) -> None:
    ranks(tmp_path, end=False)
    assert page(tmp_path) == live_page(tmp_path)
    code, out, err = run(tmp_path, output="openmetrics", source_id_label=True)
    assert (code, out) == (0, live_page(tmp_path))
    assert err == f"mx-metrics: {SOURCE_ID_WARNING}\n"
    code, out, err = run(tmp_path)
    state = fold_sources.fold_sources(
        CATALOG, find([str(tmp_path)]).sources, writers.Writers()
    ).state
    assert (code, err) == (0, "")
    assert out == text.render(text.families(state))
    assert b"mx_load_seconds_count" in out
    assert b"source_worker_id" not in out


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_golden_pages(case: Path, run: Run) -> None:
    out = run(case, output="openmetrics", source_id_label=True)[1]
    assert out == (case / "expected.om").read_bytes()


def test_several_processes_print_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks(tmp_path, processes=7, end=False)
    with (tmp_path / "events-000000000003-1.jsonl").open("ab") as file:
        file.write(b'{"event":')
    alone = page(tmp_path, jobs=1)
    used = []
    real = process_pool._spread
    monkeypatch.setattr(process_pool, "_WORTH_SPREADING", 0)
    monkeypatch.setattr(process_pool, "_spread", lambda *given: used.append(1) or real(*given))
    assert [page(tmp_path, jobs=jobs) for jobs in (2, 3)] == [alone, alone]
    assert len(used) == 2


def test_a_worker_that_dies_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks(tmp_path)
    parent = os.getpid()
    monkeypatch.setattr(process_pool, "_WORTH_SPREADING", 0)
    monkeypatch.setattr(fold_sources, "read", lambda *_, **__: os.getpid() == parent or os._exit(9))
    with pytest.raises(MxError, match="died; try again with --jobs 1"):
        page(tmp_path, jobs=2)


_STUCK = """
import sys, time
from mx_exporter.cli import main as cli
from mx_exporter.offline import fold_sources
from mx_exporter.offline.engines import process_pool
process_pool._WORTH_SPREADING = 0
fold_sources.read = lambda *_, **__: (print("reading", flush=True), time.sleep(1000))
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
    monkeypatch.setattr(process_pool, "_WORTH_SPREADING", 0)
    assert page(tmp_path, jobs=2) == right


@pytest.mark.parametrize("name", ENVELOPES)
def test_envelopes_give_the_same_page(name: str, tmp_path: Path) -> None:
    paths = ranks(tmp_path / "log", end=False)
    right = page(tmp_path / "log")
    shipped = tmp_path / "collected"
    shipped.write_bytes(ENVELOPES[name](load_logs.lines_of(paths)))
    assert page(shipped) == right
    (tmp_path / "collected.zst").write_bytes(
        zstandard.ZstdCompressor().compress(shipped.read_bytes())
    )
    assert page(tmp_path / "collected.zst") == right


def test_interleaved_and_shipped_twice_gives_the_same_page(tmp_path: Path) -> None:
    paths = ranks(tmp_path / "log", end=False)
    lines = load_logs.lines_of(paths) * 2
    random.Random(3).shuffle(lines)
    (tmp_path / "all.log").write_bytes(envelopes.cri(lines))
    assert page(tmp_path / "all.log") == page(tmp_path / "log")


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_compressed_twin_counts_once(suffix: str, tmp_path: Path) -> None:
    paths = ranks(tmp_path)
    right = page(tmp_path)
    pack = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    for path in paths:
        Path(f"{path}{suffix}").write_bytes(pack(path.read_bytes()))
    assert page(tmp_path) == right
    for path in paths[::2]:
        path.unlink()
    assert page(tmp_path) == right


def test_members_written_one_after_the_other(tmp_path: Path) -> None:
    paths = ranks(tmp_path / "log")
    whole = b"".join(gzip.compress(path.read_bytes()) for path in paths)
    (tmp_path / "all.jsonl.gz").write_bytes(whole)
    assert page(tmp_path / "all.jsonl.gz") == page(tmp_path / "log")


def test_lines_that_cross_every_boundary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks(tmp_path)
    right = page(tmp_path)
    for size in (1, 7, 300):
        monkeypatch.setattr("mx_exporter.offline.reader._BLOCK", size)
        assert page(tmp_path) == right


# --------------------------------------------------------------------------------------
# Arguments


def test_files_patterns_and_directories_name_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ranks(tmp_path)
    right = page(tmp_path)
    assert page(*reversed(paths)) == right
    assert page(tmp_path / "events-*.jsonl") == right
    assert page(tmp_path, *paths, tmp_path / "*.jsonl") == right
    monkeypatch.chdir(tmp_path)
    assert page(".") == page("events-*") == right
    assert page(paths[0].name, tmp_path) == right


def test_a_file_that_looks_like_a_pattern_is_a_file(tmp_path: Path) -> None:
    (path,) = ranks(tmp_path / "log", processes=1, segments=1)
    path.rename(tmp_path / "[odd]*.log")
    (tmp_path / "o.log").write_bytes(b"not this one\n")
    assert page(tmp_path / "[odd]*.log") == page(path.parent / "..", tmp_path / "[odd]*.log")
    assert b"mx_load_seconds_count" in page(tmp_path / "[odd]*.log")


def test_without_arguments_the_directory_of_the_environment(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks(tmp_path)
    monkeypatch.setenv("MX_METRICS_DIR", f" {tmp_path} ")
    assert run()[:2] == run(tmp_path)[:2]
    monkeypatch.setenv("MX_METRICS_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="nowhere: no such directory"):
        run()


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("missing", "no such file or directory"),
        ("missing/below", "no such file or directory"),
        ("file/below", "no such file or directory"),
        ("no*thing", "nothing matches this pattern"),
        ("dangling", "a symbolic link to nothing"),
    ],
)
def test_a_path_that_names_nothing_is_a_usage_error(log: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError) as raised:
        find([str(tmp_path / log)])
    assert str(raised.value) == f"{tmp_path / log}: {said}"


def test_foreign_files_of_a_directory_are_left_alone(tmp_path: Path, run: Run) -> None:
    ranks(tmp_path)
    right = run(tmp_path)
    for name in ("counter_1.db", ".mx-metrics.lock", "events-1.jsonl", ".events-0-0.jsonl", "x.gz"):
        (tmp_path / name).write_bytes(b"nothing of ours\n")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "events-aaaaaaaaaaaa-0.jsonl").write_bytes(b"nothing of ours\n")
    assert run(tmp_path) == right


def test_an_empty_directory_is_said(tmp_path: Path, run: Run) -> None:
    code, out, err = run(tmp_path)
    assert (code, out) == (0, b"")
    assert "no segments there" in err


# --------------------------------------------------------------------------------------
# Files that cannot be read


def test_what_is_no_regular_file_is_left_alone(tmp_path: Path, run: Run) -> None:
    paths = ranks(tmp_path)
    right = run(tmp_path)[1]
    os.mkfifo(tmp_path / "events-aaaaaaaaaaaa-0.jsonl")
    (tmp_path / "events-aaaaaaaaaaaa-1.jsonl").mkdir()
    (tmp_path / "events-aaaaaaaaaaaa-2.jsonl").symlink_to(paths[0])
    (tmp_path / "events-aaaaaaaaaaaa-3.jsonl.gz").symlink_to(tmp_path / "nowhere")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "events-aaaaaaaaaaaa-4.jsonl"))
        code, out, err = run(tmp_path)
    assert (code, out) == (0, right)
    assert err.count("is no regular file, left alone") == 5


def test_a_link_that_was_named_is_followed(tmp_path: Path) -> None:
    (path,) = ranks(tmp_path / "log", processes=1, segments=1)
    (tmp_path / "current.log").symlink_to(path)
    assert page(tmp_path / "current.log") == page(path)


def test_a_fifo_that_was_named_does_not_block(tmp_path: Path, run: Run) -> None:
    os.mkfifo(tmp_path / "pipe")
    code, _, err = run(tmp_path / "pipe")
    assert code == 1
    assert "pipe: is no regular file" in err


@contextmanager
def nobody() -> Iterator[None]:
    """Not root, for whom every file is readable."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of segments, the working directory, in which one may not be read."""
    directory = tmp_path / "log"
    paths = ranks(directory, processes=2, segments=1)
    directory.chmod(0o755)
    paths[0].chmod(0o644)
    paths[1].chmod(0)
    monkeypatch.chdir(directory)
    return paths[1]


def test_an_unreadable_file_is_said_and_the_others_are_read(unreadable: Path, run: Run) -> None:
    with nobody():
        code, out, err = run(".")
    assert code == 1
    assert b"mx_load_seconds_count" in out
    assert err == f"mx-metrics: ./{unreadable.name}: cannot be opened: Permission denied\n"


def test_an_unreadable_file_that_was_named_is_a_failure(unreadable: Path, run: Run) -> None:
    with nobody():
        code, out, err = run(unreadable.name)
    assert (code, out) == (1, b"")
    assert "cannot be opened: Permission denied" in err


def test_an_unlistable_directory_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir(mode=0)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    with nobody(), pytest.raises(MxError, match="log: cannot be listed: Permission denied"):
        find(["log"])


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_compressed_file_that_was_cut_off(suffix: str, tmp_path: Path, run: Run) -> None:
    log = Lines()
    text = log.header() + b"".join(
        log("source_attempted", policy="random", result="success") for _ in range(20_000)
    )
    pack = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    path = tmp_path / f"events-{log.proc}-0.jsonl{suffix}"
    path.write_bytes(pack(text)[:-2000])
    code, out, err = run(tmp_path)
    assert code == 1
    assert b'mx_p2p_source_attempts_total{policy="random",result="success"' in out
    assert f"{path}: the {'gzip' if suffix == '.gz' else 'zstd'} data ends in the middle" in err
    assert run(path) == (1, out, err)


def test_lines_that_are_none_are_counted_and_said(tmp_path: Path, run: Run) -> None:
    (path,) = ranks(tmp_path, processes=1, segments=1)
    right = run(tmp_path)[1]
    log = Lines("0" * 12, seq=1_000)
    with path.open("ab") as file:
        file.write(b"no json\n[1]\n\n")
        file.write(log("load_finished", engine="vllm", model_role="main", outcome="success"))
    code, out, err = run(tmp_path)
    assert code == 0
    assert out == right
    assert err == (
        "mx-metrics: 2 line(s) rejected, 1 observation(s) refused, 975 event(s) lost; "
        "`mx-metrics check` with the same arguments says which and why\n"
    )


# --------------------------------------------------------------------------------------
# The end of a log, and writers that live


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_an_unterminated_last_line(
    pack: Callable[[bytes], bytes], tmp_path: Path, run: Run
) -> None:
    (path,) = ranks(tmp_path, processes=1, segments=1)
    whole = path.read_bytes()
    right = run(tmp_path)
    path.unlink()
    if pack is gzip.compress:
        path = path.with_suffix(".jsonl.gz")
    path.write_bytes(pack(whole[:-1]))
    assert run(tmp_path) == right
    path.write_bytes(pack(whole + b'{"event":"load_st'))
    code, out, err = run(tmp_path)
    assert (code, out) == right[:2]
    assert "1 line(s) rejected" in err


def test_a_living_writer(tmp_path: Path, run: Run) -> None:
    paths = ranks(tmp_path, processes=2, end=False)
    with paths[1].open("ab") as file:
        file.write(b'{"event":"load_st')
    with locked(paths[1]):
        beside = page(tmp_path)
        assert beside == live_page(tmp_path)
        assert run(tmp_path)[2] == ""
        assert page(*paths) == beside
        # Its finished segment alone: the writer lives all the same.
        assert b'phase="chain",scheme="test"} 0.0' in page(paths[0])
    after = page(tmp_path)
    assert after == live_page(tmp_path)
    running, gone = b'in_progress{engine="vllm"', b'abandoned_total{engine="vllm"'
    values = [
        [line[-3:] for line in text.splitlines() if start in line and b"chain" in line]
        for text in (beside, after)
        for start in (running, gone)
    ]
    assert values == [[b"1.0"], [b"1.0"], [b"0.0"], [b"2.0"]]


def test_a_writer_that_goes_on_to_its_next_segment_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Lines()
    rng = random.Random(1)
    load_logs.segment(log, tmp_path, 0, load_logs.loads(log, 1, rng, end=False))
    real, held = writers.probe, []

    def rotate(fd: int) -> bool:
        gone = real(fd)
        if len(held) < 3:
            more = load_logs.segment(log, tmp_path, len(held) + 1, [])
            held.append(os.open(more, os.O_RDWR))
            fcntl.flock(held[-1], fcntl.LOCK_EX)
            if len(held) > 1:
                os.close(held[-2])
        return gone

    monkeypatch.setattr(writers, "probe", rotate)
    found = find([str(tmp_path)])
    told = survey(found)
    os.close(held[-1])
    assert told.alive == {log.proc}
    assert [source.segment.n for source in found.sources if source.segment] == [0, 1, 2, 3]
    assert str(tmp_path / f"events-{log.proc}-3.jsonl") in told.open
    assert str(tmp_path / f"events-{log.proc}-0.jsonl") not in told.open


def test_where_there_are_no_locks_the_newest_segment_may_be_written(tmp_path: Path) -> None:
    log = Lines()
    rng = random.Random(1)
    for n in range(2):
        lines = load_logs.loads(log, 1, rng, end=False)
        path = load_logs.segment(log, tmp_path, n, lines, locked=False)
    with path.open("ab") as file:
        file.write(b'{"event":"load_st')
    assert page(tmp_path) == live_page(tmp_path)
    assert b'abandoned_total{engine="vllm",model="acme/gro\xc3\x9fe-7b",phase="chain"' in page(path)


# --------------------------------------------------------------------------------------
# Output


def test_json_gives_one_object_a_series(tmp_path: Path, run: Run) -> None:
    log = Lines(scheme="s")
    lines = [
        log.header(),
        log("sources_ordered", policy="p", seconds=0.5),
        log("sources_ordered", policy="p", seconds=1.0),
        log("candidate_loads_seen", loads=[{"source_worker_id": "w", "load": 0.25}]),
        log("transfer_finished", policy="p", outcome="o", seconds=1.7e308),
        log("transfer_finished", policy="p", outcome="o", seconds=1.7e308),
    ]
    (tmp_path / "log").write_bytes(b"".join(lines))
    code, out, err = run(tmp_path / "log", output="json", source_id_label=True)
    assert (code, err) == (0, f"mx-metrics: {SOURCE_ID_WARNING}\n")
    given = [json.loads(line) for line in out.splitlines()]
    by_name = {each["name"]: each for each in given}
    assert by_name["mx_build_info"] == {
        "name": "mx_build_info",
        "type": "gauge",
        "labels": {"component": "client", "version": "0.7.0", "scheme": "s"},
        "value": 1,
    }
    assert by_name["mx_p2p_source_load"]["labels"] == {"scheme": "s", "source_worker_id": "w"}
    assert by_name["mx_p2p_source_load"]["value"] == 0.25
    assert by_name["mx_p2p_source_selection_seconds"] == {
        "name": "mx_p2p_source_selection_seconds",
        "type": "histogram",
        "labels": {"policy": "p", "scheme": "s"},
        "buckets": {"1e-05": 0, "0.0001": 0, "0.001": 0, "0.01": 0, "0.1": 0, "1.0": 2, "+Inf": 2},
        "sum": 1.5,
        "count": 2,
        "created": Lines.START + 1,
    }
    assert by_name["mx_p2p_transfer_seconds"]["sum"] == "+Inf"
    assert by_name["mx_nixl_receive_total"]["type"] == "counter"
    assert by_name["mx_nixl_receive_total"]["value"] == 0
    assert all("_created" not in name and "_bucket" not in name for name in by_name)


def test_a_cap_holds_for_all_cores_together(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        log = Lines(f"{number:012x}", scheme=f"s{number}")
        load_logs.segment(log, tmp_path, 0, [])
    monkeypatch.setattr(process_pool, "_WORTH_SPREADING", 0)
    out = run(tmp_path, max_series=2, jobs=2)[1]
    assert out.count(b"mx_build_info{") == 2
    assert run(tmp_path, jobs=2)[1].count(b"mx_build_info{") == 6


# --------------------------------------------------------------------------------------
# As a command


def test_standard_input_packed_or_not(tmp_path: Path, spawn: Spawner) -> None:
    paths = ranks(tmp_path / "log")
    right = spawn.python("-m", "mx_exporter", "replay", tmp_path / "log")
    assert right.result() == 0
    whole = envelopes.docker(load_logs.lines_of(paths))
    for name, data in (("plain", whole), ("gz", gzip.compress(whole))):
        (tmp_path / name).write_bytes(data)
        with (tmp_path / name).open("rb") as stdin:
            process = spawn.python("-m", "mx_exporter", "replay", "-", stdin=stdin)
        assert (process.result(), process.output, process.error_output) == (0, right.output, "")


def test_a_pipe_that_a_shell_hands_down(tmp_path: Path) -> None:
    paths = ranks(tmp_path / "log")
    command = [sys.executable, "-m", "mx_exporter", "replay"]
    env = clean_environment()
    right = subprocess.check_output([*command, tmp_path / "log"], env=env)
    reader, writer = os.pipe()
    with subprocess.Popen(
        [*command, f"/dev/fd/{reader}"], env=env, pass_fds=[reader], stdout=subprocess.PIPE
    ) as process:
        os.close(reader)
        with open(writer, "wb") as pipe:
            for path in paths:
                pipe.write(path.read_bytes())
        assert process.stdout is not None
        assert process.stdout.read() == right
    assert process.returncode == 0


def test_exit_codes_and_one_line_of_error(tmp_path: Path, spawn: Spawner) -> None:
    process = spawn.python("-m", "mx_exporter", "replay", tmp_path / "missing")
    assert process.result() == 2
    assert process.output == ""
    assert process.error_output == f"mx-metrics: {tmp_path}/missing: no such file or directory\n"


def test_a_reader_that_goes_away_is_no_news(tmp_path: Path, spawn: Spawner) -> None:
    ranks(tmp_path / "log")
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as stdout:
        process = spawn.python("-m", "mx_exporter", "replay", tmp_path / "log", stdout=stdout)
    assert process.result() == 1
    assert process.error_output == ""


def test_progress_is_for_terminals(tmp_path: Path, spawn: Spawner) -> None:
    ranks(tmp_path / "log")
    master, slave = pty.openpty()
    try:
        command = ("-m", "mx_exporter", "replay", "--jobs", "1", tmp_path / "log")
        process = spawn.python(*command, stderr=slave)
        assert process.result() == 0
        os.set_blocking(master, False)
        seen = io.BytesIO()

        def told() -> bool:
            with suppress(BlockingIOError):
                seen.write(os.read(master, 4096))
            return seen.getvalue().endswith(b"\r\x1b[K")

        wait_until(told)
        assert b"reading: " in seen.getvalue()
    finally:
        os.close(master)
        os.close(slave)
    quiet = spawn.python("-m", "mx_exporter", "replay", tmp_path / "log")
    assert (quiet.result(), quiet.error_output) == (0, "")
