"""The files that paths, patterns and directories name, and those that cannot be read."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mx_exporter.errors import MxError, UsageError
from mx_exporter.offline.sources import find
from tests.support.commands import Run
from tests.support.folding import replayed_page as page
from tests.support.load_logs import ranks


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
    assert (code, out) == (1, b"")
    assert err == (
        f"mx-metrics: {tmp_path}: no segments there (events-<12 hex digits>-<number>.jsonl, plain "
        "or compressed), and nothing else\n"
    )


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
