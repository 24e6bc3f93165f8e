"""The end of a log: writers that live, and writers that are gone."""

from __future__ import annotations

import fcntl
import gzip
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mx_exporter.offline import writers
from mx_exporter.offline.sources import find
from mx_exporter.offline.writers import survey
from tests.support import Lines, load_logs
from tests.support.commands import Run
from tests.support.folding import live_page
from tests.support.folding import replayed_page as page
from tests.support.load_logs import ranks


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """The file's writer lives."""
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


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
    assert "1 line rejected" in err


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
