"""Replay and check of directories that an exporter compacted: the snapshot and what remains."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from mx_exporter.cli import check, replay
from mx_exporter.core import snapshot_codec as snapshot
from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.core.state import State
from mx_exporter.errors import MxError
from mx_exporter.offline import fold_logs
from mx_exporter.offline.engines import process_pool
from mx_exporter.offline.inputs import find_inputs, merge_snapshots
from mx_log.files import SNAPSHOT_NAME
from tests.support import Lines, load_logs
from tests.support.commands import Run
from tests.support.folding import compact, derived_page, live_page, page_of
from tests.support.folding import replayed_page as page
from tests.support.load_logs import ranks
from tests.support.log_lines import segments_in, size_of
from tests.support.snapshots import content_of, sealed


def archive(directory: Path, to: Path, suffix: str = ".gz") -> None:
    pack = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    to.mkdir()
    for path in directory.glob("events-*.jsonl"):
        (to / f"{path.name}{suffix}").write_bytes(pack(path.read_bytes()))


def rewrite(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = directory / SNAPSHOT_NAME
    content = content_of(path.read_bytes())
    change(content)
    path.write_bytes(sealed(content))


# --------------------------------------------------------------------------------------
# Equal to what is served, and to what it was before


@pytest.mark.parametrize("keep", [0, 1, 2], ids=["all gone", "some gone", "none gone"])
def test_a_compaction_changes_no_page(keep: int, tmp_path: Path, run: Run) -> None:
    ranks(tmp_path, processes=4, segments=4, end=False)
    before = page(tmp_path)
    assert before == live_page(tmp_path)
    live = compact(tmp_path, retain=size_of(tmp_path) * keep // 2 or 1)
    assert (tmp_path / SNAPSHOT_NAME).exists() == (keep < 2)
    assert len(segments_in(tmp_path)) == {0: 0, 2: 16}.get(keep, len(segments_in(tmp_path)))
    assert page(tmp_path) == live_page(tmp_path) == page_of(live.fold.state) == before
    state = live.fold.state
    for output, served in (
        ("text", derived_page(state)),
        ("openmetrics", page_of(state, source_id_label=False)),
    ):
        assert run(tmp_path, output=output) == (0, served, "")


def test_living_writers_go_on_from_a_snapshot(tmp_path: Path) -> None:
    paths = ranks(tmp_path, processes=3, segments=3, end=False)
    held = [path.open("ab") for path in (paths[2], paths[5])]
    for file in held:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(b'{"event":')
        file.flush()
    before = page(tmp_path)
    live = compact(tmp_path)
    assert segments_in(tmp_path) == [paths[2].name, paths[5].name]
    beside = page(tmp_path)
    assert beside == page_of(live.fold.state) == before
    assert b'in_progress{engine="vllm",model="acme/gro\xc3\x9fe-7b",phase="chain",' in beside
    # The snapshot alone says that they ran when it was made; the locks beside it, that they do.
    alone = page(tmp_path / SNAPSHOT_NAME)
    shutil.copy(tmp_path / SNAPSHOT_NAME, tmp_path / "elsewhere.snapshot")
    (tmp_path / "copied").mkdir()
    shutil.move(tmp_path / "elsewhere.snapshot", tmp_path / "copied")
    gone = find_inputs(CATALOG, [str(tmp_path / "copied" / "elsewhere.snapshot")])
    assert gone.writers.alive == set()
    assert find_inputs(CATALOG, [str(tmp_path / SNAPSHOT_NAME)]).writers.alive == {
        "0" * 12,
        "0" * 11 + "1",
    }
    assert b"mx_load_seconds_count" in alone
    for file in held:
        file.close()
    live.drain()
    after = page(tmp_path)
    assert after == page_of(live.fold.state) == live_page(tmp_path)
    assert after != beside


def test_a_writer_that_logs_on_after_a_compaction(tmp_path: Path) -> None:
    log, rng = Lines(), random.Random(5)
    whole = tmp_path / "whole"
    short = tmp_path / "short"
    whole.mkdir()
    for n in range(3):
        load_logs.segment(log, whole, n, load_logs.loads(log, 2, rng, end=False))
    shutil.copytree(whole, short)
    compact(short)
    assert segments_in(short) == []
    for n in (3, 4):
        more = load_logs.segment(log, whole, n, load_logs.loads(log, 2, rng))
        shutil.copy(more, short)
    assert page(short) == live_page(short)
    # The exporter took the writer for gone: three loads were abandoned, either way.
    assert page(short) == page(whole)


def test_segments_that_the_snapshot_stands_for_are_not_read(
    tmp_path: Path, checked: Callable[..., tuple[int, list[str]]]
) -> None:
    """As after a crash between the snapshot and the removal of the segments."""
    ranks(tmp_path, processes=2, segments=3)
    with (tmp_path / "events-000000000001-0.jsonl").open("ab") as file:
        file.write(b"junk\n")
    before = page(tmp_path)
    shutil.copytree(tmp_path, tmp_path / "copy")
    compact(tmp_path, retain=size_of(tmp_path) // 2)
    remain = set(segments_in(tmp_path))
    for path in (tmp_path / "copy").iterdir():
        shutil.copy(path, tmp_path)
    found = find_inputs(CATALOG, [str(tmp_path)]).found
    assert {os.path.basename(source.path) for source in found.sources} == remain
    assert 0 < len(remain) < 6
    assert page(tmp_path) == before
    # Also when the files are named, whoever expands the pattern.
    assert page(tmp_path / "*") == page(*(p for p in tmp_path.iterdir() if p.is_file())) == before
    assert checked(tmp_path)[1][-1].endswith("of 2 processes: 1 line rejected")


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_an_archive_of_the_same_segments_counts_once(suffix: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    ranks(log, processes=3, segments=4, end=False)
    before = page(log)
    archive(log, tmp_path / "kept", suffix)
    compact(log, retain=size_of(log) // 2)
    assert page(log, tmp_path / "kept") == page(tmp_path / "kept", log) == before
    assert page(tmp_path / "kept") == before
    assert page(log / SNAPSHOT_NAME, tmp_path / "kept") == before


def test_an_archive_fills_what_a_snapshot_lacks(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ranks(log, processes=2, segments=3)
    before = page(log)
    archive(log, tmp_path / "kept")
    (log / "events-000000000000-1.jsonl").unlink()
    compact(log)
    assert page(log) != before
    assert page(log, tmp_path / "kept") == before


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_snapshot_that_is_named(suffix: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    ranks(log, processes=3, segments=2, end=False)
    before = page(log)
    compact(log)
    data = (log / SNAPSHOT_NAME).read_bytes()
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    path = tmp_path / f"engine-0.snapshot{suffix}"
    path.write_bytes(pack(data))
    assert page(path) == before
    # The same one by several names, or in several copies, is one.
    (tmp_path / "link").symlink_to(log)
    assert page(path, log, tmp_path / "link", log / SNAPSHOT_NAME) == before
    (log / SNAPSHOT_NAME).unlink()
    (log / f"{SNAPSHOT_NAME}{suffix}").write_bytes(pack(data))
    assert page(log) == before


def test_several_directories_merge(tmp_path: Path) -> None:
    pods = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    rng = random.Random(11)
    for number, pod in enumerate(pods):
        pod.mkdir()
        for rank in range(2):
            log = Lines(f"{number}{rank:011x}", rank=rank, start=Lines.START + rank / 7)
            for n in range(3):
                load_logs.segment(log, pod, n, load_logs.loads(log, 2, rng, end=n < 2))
    before = page(*pods)
    compact(pods[0])
    compact(pods[1], retain=size_of(pods[1]) // 2)
    assert page(*pods) == page(*pods[::-1]) == before
    collected = tmp_path / "collected"
    collected.mkdir()
    for pod in pods:
        for path in pod.iterdir():
            name = f"{pod.name}.snapshot" if path.name == SNAPSHOT_NAME else path.name
            shutil.copy(path, collected / name)
    assert page(collected / "*") == before


def test_two_snapshots_of_one_process_are_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ranks(log, processes=3, segments=3)
    older = tmp_path / "older"
    compact(log, retain=size_of(log) // 2)
    shutil.copytree(log, older)
    compact(log)
    for command in (replay.run, check.run):
        with pytest.raises(MxError) as caught:
            command((str(older), str(log)))
        assert caught.value.exit_code == 1
        said = str(caught.value)
        assert f"{older}/{SNAPSHOT_NAME} and {log}/{SNAPSHOT_NAME} both stand for process 0" in said
        assert "leave one of the two out" in said
    assert page(log) == page(log, *older.glob("events-*"))


def test_several_processes_print_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    ranks(log, processes=7, segments=4, end=False)
    (log / "events-000000000002-1.jsonl").unlink()
    archive(log, tmp_path / "kept")
    live = compact(log, retain=size_of(log) // 2)
    alone = page(log, tmp_path / "kept")
    assert alone == page_of(live.fold.state)
    used = []
    real = fold_logs._spread
    monkeypatch.setattr(process_pool, "WORTH_SPREADING", 0)
    monkeypatch.setattr(fold_logs, "_spread", lambda *given: used.append(1) or real(*given))
    assert [page(log, tmp_path / "kept", jobs=jobs) for jobs in (2, 3)] == [alone, alone]
    assert page(log, jobs=2) == alone
    assert len(used) == 3
    # A file that holds another process than its name says, one that only the snapshot knows.
    (tmp_path / "kept" / "events-000000000000-0.jsonl.gz").rename(
        tmp_path / "kept" / "events-ffffffffffff-0.jsonl.gz"
    )
    assert page(log, tmp_path / "kept", jobs=2) == alone
    assert len(used) == 4


def test_folding_on_from_parts_of_a_state_gives_the_whole(tmp_path: Path) -> None:
    paths = ranks(tmp_path, processes=4, segments=3, end=False)
    lines = load_logs.lines_of(paths)
    rng = random.Random(2)
    for _ in range(20):
        rng.shuffle(lines)
        cut = rng.randrange(len(lines))
        whole, half = Fold(CATALOG), Fold(CATALOG)
        whole.feed_lines(lines)
        half.feed_lines(lines[:cut])
        parts = [half.state.split_off(CATALOG, {f"{rank:012x}"}) for rank in range(4)]
        folds = [Fold(CATALOG, part) for part in parts]
        for rank, fold in enumerate(folds):
            mine = b'"proc":"%012x"' % rank
            fold.feed_lines(line for line in lines[cut:] if mine in line)
        state = half.state
        for fold in folds:
            state.merge(fold.state)
        assert page_of(state) == page_of(whole.state)
        for name in ("logged", "lost", "gone", "duplicates", "events"):
            assert getattr(state, name) == getattr(whole.state, name)


def test_a_cap_holds_for_the_snapshot_as_well(tmp_path: Path, run: Run) -> None:
    for number in range(6):
        load_logs.segment(Lines(f"{number:012x}", scheme=f"s{number}"), tmp_path, 0, [])
    compact(tmp_path, retain=size_of(tmp_path) // 2)
    assert run(tmp_path, max_series=5)[1].count(b"mx_build_info{") == 5
    assert run(tmp_path)[1].count(b"mx_build_info{") == 6


def test_a_snapshot_without_segments_is_no_empty_directory(tmp_path: Path, run: Run) -> None:
    ranks(tmp_path)
    compact(tmp_path)
    code, out, err = run(tmp_path)
    assert (code, err) == (0, "")
    assert b"mx_load_seconds_count" in out


# --------------------------------------------------------------------------------------
# Snapshots that cannot be used, or not wholly


def another_table(content: dict[str, Any]) -> None:
    content["families"]["mx_load_seconds"]["table"] += "; another"


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "is damaged"),
        (lambda path: path.write_bytes(b""), "is damaged"),
        (lambda path: path.write_bytes(sealed({}, format=3)), "is of format 3, of a newer release"),
        (lambda path: os.truncate(path, 600 * 10**6), "has 600000000 bytes"),
        (lambda path: (path.unlink(), path.mkdir()), "is no regular file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is no regular file"),
        (lambda path: (path.rename(f"{path}.1"), path.symlink_to(f"{path}.1")), "no regular file"),
    ],
)
def test_a_snapshot_that_cannot_be_used(
    damage: Callable[[Path], object],
    why: str,
    tmp_path: Path,
    checked: Callable[..., tuple[int, list[str]]],
) -> None:
    ranks(tmp_path, processes=2, segments=2)
    compact(tmp_path, retain=size_of(tmp_path) // 2)
    path = tmp_path / SNAPSHOT_NAME
    damage(path)
    with pytest.raises(MxError, match=f"{path}: .*{why}") as caught:
        replay.run((str(tmp_path),))
    assert caught.value.exit_code == 1
    assert "name the segments alone" in str(caught.value)
    assert b"mx_load_seconds_count" in page(tmp_path / "events-*")
    code, report = checked(tmp_path)
    assert code == 3
    assert report[0].startswith(f"{path}: ")
    assert why in report[0]
    assert report[-1].endswith(", 1 snapshot that cannot be used")
    code, (text,) = checked(tmp_path, as_json=True)
    assert code == 3
    assert why in json.loads(text)["snapshots"][0]["problem"]


def test_a_packed_snapshot_that_was_cut_off(tmp_path: Path) -> None:
    ranks(tmp_path)
    compact(tmp_path)
    path = tmp_path / SNAPSHOT_NAME
    Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes())[:-4])
    path.unlink()
    with pytest.raises(MxError, match=r"snapshot\.gz: the gzip data ends in the middle"):
        replay.run((str(tmp_path),))


def test_a_family_whose_table_changed_is_said(
    tmp_path: Path,
    run: Run,
    checked: Callable[..., tuple[int, list[str]]],
) -> None:
    ranks(tmp_path, processes=2, segments=2)
    compact(tmp_path, retain=size_of(tmp_path) // 2)
    rewrite(tmp_path, another_table)
    code, _, err = run(tmp_path)
    assert (code, err) == (
        0,
        f"mx-metrics: {tmp_path}/{SNAPSHOT_NAME}: derived with another table, so mx_load_seconds "
        "holds only what is in the segments\n",
    )
    code, report = checked(tmp_path)
    assert code == 0
    assert f"{tmp_path}/{SNAPSHOT_NAME}: derived with another table" in report[1]
    assert "mx_load_seconds" in report[1]


# --------------------------------------------------------------------------------------
# What a check says of it


def test_a_check_says_what_a_snapshot_stands_for(
    tmp_path: Path, checked: Callable[..., tuple[int, list[str]]]
) -> None:
    log, other = Lines(), Lines("b" * 12)
    tried = ("source_attempted", {"policy": "p", "result": "r"})
    log.segment(tmp_path, 0, [tried] * 3)
    log.seq += 2
    log.segment(tmp_path, 1, [tried, ("not_known", {}), ("sources_ordered", {"policy": "p"})])
    with (tmp_path / f"events-{log.proc}-1.jsonl").open("ab") as file:
        file.write(b"junk\n" + log("source_attempted", policy=1, result="r"))
    other.segment(tmp_path, 0, [tried])
    compact(tmp_path)
    other.segment(tmp_path, 1, [tried])
    path = tmp_path / SNAPSHOT_NAME
    code, report = checked(tmp_path)
    assert code == 3
    assert report == [
        f"{path}: stands for segments of 2 processes: 10 events (1 not known, 1 refused, 2 lost), "
        "2 lines rejected",
        f"{path}: process {log.proc}: without seq 4-5",
        f"{path}: rejected: 1 not_json, 1 wrong_type",
        f"{path}: refused: 1 missing",
        f"process {log.proc}: 2 events lost of 11, seq 4-5",
        "2 lines: 2 events, 0 met before, 0 rejected, 0 of others",
        "1 file and 1 snapshot, 12 events of 2 processes: 2 lines rejected, "
        "1 observation refused, 2 events lost",
    ]
    code, (text,) = checked(tmp_path, as_json=True)
    told = json.loads(text)
    assert (code, told["faulty"]) == (3, True)
    assert told["snapshots"] == [
        {
            "path": str(path),
            "segments": {log.proc: 1, other.proc: 0},
            "events": {"process_started": 2, "segment_continued": 1, "source_attempted": 5},
            "rejected": {"not_json": 1, "wrong_type": 1},
            "refused": {"missing": 1},
            "not_known": 1,
            "duplicates": 0,
            "lost_ranges": {log.proc: [[4, 5]]},
            "families_lacking": [],
            "problem": None,
        }
    ]
    assert [process["lost"] for process in told["processes"]] == [2, 0]


def test_what_a_snapshot_holds_is_not_lost(
    tmp_path: Path, checked: Callable[..., tuple[int, list[str]]]
) -> None:
    log = Lines()
    for n in range(2):
        log.segment(tmp_path, n, [("source_attempted", {"policy": "p", "result": "r"})])
    compact(tmp_path)
    log.segment(tmp_path, 2, [])
    code, report = checked(tmp_path)
    assert code == 0
    assert report[-1] == "1 file and 1 snapshot, 5 events of 1 process: nothing is faulty"
    # Without the snapshot they are; and what was lost later is told from what it stands for.
    assert checked(tmp_path / "events-*")[0] == 3
    log.seq += 4
    log.segment(tmp_path, 5, [])
    assert checked(tmp_path)[1][-3] == (
        f"process {log.proc}: 4 events lost of 10, seq 5-8 "
        "(its segments 3-4 are not among these logs)"
    )


def test_a_snapshot_that_only_keeps_what_was_shipped(
    tmp_path: Path, run: Run, checked: Callable[..., tuple[int, list[str]]]
) -> None:
    ranks(tmp_path)
    before = run(tmp_path)
    (tmp_path / SNAPSHOT_NAME).write_bytes(snapshot.dump(CATALOG, State(CATALOG), {}))
    assert run(tmp_path) == before
    code, report = checked(tmp_path)
    assert code == 0
    assert report[0] == f"{tmp_path}/{SNAPSHOT_NAME}: stands for no segments yet"


def test_merged_states_keep_all_totals(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Lines(name * 12).segment(tmp_path / name, 0, [("not_known", {})])
        compact(tmp_path / name)
    state = merge_snapshots(
        CATALOG, find_inputs(CATALOG, [str(tmp_path / "a"), str(tmp_path / "b")]).snapshots
    )
    assert (state.logged, state.skipped, state.gone, state.lost) == (4, 2, 2, 0)
