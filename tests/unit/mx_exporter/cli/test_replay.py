"""`mx-metrics replay`: what it prints, and that it is what the live exporter serves."""

from __future__ import annotations

import gzip
import io
import json
import os
import pty
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard

from mx_exporter.config import SOURCE_ID_WARNING
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import SUM
from mx_exporter.exposition import samples
from mx_exporter.offline import fold_sources, writers
from mx_exporter.offline.sources import find
from tests.support import ROOT, Lines, Spawner, clean_environment, envelopes, load_logs, wait_until
from tests.support.commands import Run
from tests.support.envelopes import ENVELOPES
from tests.support.folding import derived_page, live_page
from tests.support.folding import replayed_page as page
from tests.support.load_logs import ranks

GOLDEN = sorted(path.parent for path in (ROOT / "tests" / "golden").glob("*/expected.om"))


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
    assert out == derived_page(state)
    assert b"mx_load_seconds_count" in out
    assert b"source_worker_id" not in out


@pytest.mark.parametrize("output", ["text", "openmetrics", "json"])
def test_a_family_that_cannot_be_printed_costs_that_family(
    output: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks(tmp_path)
    whole = run(tmp_path, output=output)[1]

    def broken(*_: object) -> object:
        raise RuntimeError("no sum")

    monkeypatch.setitem(samples._MAKE, SUM, broken)
    code, out, err = run(tmp_path, output=output)
    lost = [family.name for family in CATALOG.families if family.measure == SUM]
    assert (code, err) == (
        1,
        "".join(
            f"mx-metrics: {name} could not be printed: RuntimeError: no sum\n"
            for name in lost
            if name.encode() in whole
        ),
    )
    assert err
    words = [name.removesuffix("_total").encode() for name in lost]
    kept = [line for line in whole.splitlines(True) if not any(word in line for word in words)]
    assert out == b"".join(kept)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_golden_pages(case: Path, run: Run) -> None:
    out = run(case, output="openmetrics", source_id_label=True)[1]
    assert out == (case / "expected.om").read_bytes()


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
# Files that cannot be read


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
        "mx-metrics: 2 lines rejected, 1 observation refused, 975 events lost; "
        "`mx-metrics check` with the same arguments says which and why\n"
    )


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


def test_a_closed_pipe_ends_a_replay_quietly(tmp_path: Path, spawn: Spawner) -> None:
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
