"""Addresses among the logs: what they name is read like files, and no secret in one is told."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from mx_exporter.errors import MxError, UsageError
from mx_exporter.offline import remote
from mx_exporter.offline.sources import find
from mx_exporter.offline.stores import shown
from tests.support import folding
from tests.support.commands import Checked, Run
from tests.support.load_logs import ranks


@pytest.fixture
def store() -> Iterator[Any]:
    """The store of addresses that begin with memory://, empty."""
    memory = fsspec.filesystem("memory")
    yield memory
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


def put(store: Any, paths: list[Path], prefix: str = "/bucket/logs") -> None:
    """Copy files there."""
    for path in paths:
        store.pipe(f"{prefix}/{path.name}", path.read_bytes())


@pytest.mark.parametrize(
    "address",
    [
        "memory://bucket/logs",
        "memory://bucket/logs/",
        "memory://bucket/logs/events-*.jsonl",
        "memory://bucket/l*s",
        "memory://bucket/**/*.jsonl",
    ],
)
def test_an_address_names_what_a_path_would(address: str, tmp_path: Path, store: Any) -> None:
    put(store, ranks(tmp_path))
    store.pipe("/bucket/logs/other.txt", b"nothing of ours\n")
    assert folding.replayed_page(address) == folding.replayed_page(tmp_path)


def test_what_is_named_twice_is_read_once(tmp_path: Path, store: Any) -> None:
    put(store, ranks(tmp_path, processes=1, segments=1))
    found = find(["memory://bucket/logs", "memory://bucket/logs/", "memory://bucket/logs/*"])
    assert len(found.sources) == 1
    assert not found.sources[0].lockable


def _tar(paths: list[Path]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path in paths:
            archive.add(path, path.name)
    return packed.getvalue()


def _zip(paths: list[Path]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in paths:
            archive.write(path, path.name)
    return packed.getvalue()


def _gzip(paths: list[Path]) -> bytes:
    return gzip.compress(b"".join(path.read_bytes() for path in paths))


@pytest.mark.parametrize("pack", [_tar, _zip, _gzip])
def test_archives_are_told_by_their_first_bytes(
    pack: Callable[[list[Path]], bytes], tmp_path: Path, store: Any
) -> None:
    store.pipe("/bucket/logs.bin", pack(ranks(tmp_path)))
    assert folding.replayed_page("memory://bucket/logs.bin") == folding.replayed_page(tmp_path)


def test_a_snapshot_stands_for_segments_beside_it(tmp_path: Path, store: Any) -> None:
    paths = ranks(tmp_path / "log")
    right = folding.replayed_page(tmp_path / "log")
    put(store, paths)  # what the snapshot stands for is there as well
    folding.compact(tmp_path / "log")
    put(store, [tmp_path / "log" / "mx-metrics.snapshot"])
    assert folding.replayed_page("memory://bucket/logs") == right
    put(store, [tmp_path / "log" / "mx-metrics.snapshot"], "/bucket/alone")
    store.pipe("/bucket/alone/mx-metrics.snapshot", b"damaged")
    with pytest.raises(MxError, match=r"memory://bucket/alone/mx-metrics.snapshot: "):
        folding.replayed_page("memory://bucket/alone")


def test_processes_read_addresses_themselves(tmp_path: Path, store: Any) -> None:
    put(store, ranks(tmp_path))
    found = find(["memory://bucket/logs"])
    again = pickle.loads(pickle.dumps(found.sources))
    assert again == found.sources
    assert again[0].opened().read(1) == b"{"


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay"],
        ["check"],
        ["loads"],
        ["events"],
        ["explain", "mx_load_seconds"],
        ["diff", "memory://bucket/logs"],
        ["trace"],
        ["report", "-o", "-"],
        ["backfill", "-o", "-"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_each_command_that_reads_logs_takes_an_address(
    arguments: list[str], tmp_path: Path, store: Any, mx_metrics: Run
) -> None:
    put(store, ranks(tmp_path))
    code, out, err = mx_metrics(*arguments, "memory://bucket/logs")
    assert (code, err) == (0, "")
    local = [argument.replace("memory://bucket/logs", str(tmp_path)) for argument in arguments]
    expected = mx_metrics(*local, tmp_path)[1].replace(bytes(tmp_path), b"memory://bucket/logs")
    if arguments[0] != "report":  # which says when it was made
        assert out == expected


def test_a_directory_without_segments_says_what_is_there(store: Any, checked: Checked) -> None:
    store.pipe("/bucket/logs/0.log", b"nothing of ours\n")
    code, lines = checked("memory://bucket/logs")
    assert (code, lines[0]) == (
        3,
        "memory://bucket/logs: no segments there (events-<12 hex digits>-<number>.jsonl, plain or "
        "compressed), but 1 other file: 0.log; to read other files name them: "
        "'memory://bucket/logs/*'",
    )


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("memory://bucket/logs", "memory://bucket/logs: no such file or directory"),
        ("memory://bucket/l*", "memory://bucket/l*: nothing matches this pattern"),
        ("memory://b**/x", "memory://b**/x: ** stands for directories, alone between slashes"),
        (
            "nowhere://user:secret@host/x",
            "nowhere://host/x: no package has addresses that begin with nowhere://",
        ),
    ],
)
def test_an_address_that_names_nothing_is_a_usage_error(
    address: str, said: str, mx_metrics: Run
) -> None:
    assert mx_metrics("replay", address) == (2, b"", f"mx-metrics: {said}\n")


def test_an_address_of_this_machine_is_a_path(tmp_path: Path) -> None:
    (path,) = ranks(tmp_path, processes=1, segments=1)
    assert find([f"file://{tmp_path}"]).sources == find([str(tmp_path)]).sources
    assert find([f"file://{path}"]).sources[0].lockable
    with pytest.raises(UsageError, match=rf"^{tmp_path}/gone: no such file"):
        find([f"file://{tmp_path}/gone"])


@pytest.mark.parametrize(
    ("protocol", "module", "said"),
    [
        ("s3", "fsspec", "pip install 'mx-metrics[remote]'"),
        ("s3", "s3fs", "pip install 'mx-metrics[remote]'"),
        ("https", "aiohttp", "pip install 'mx-metrics[remote]'"),
        ("gs", "gcsfs", "please install gcsfs"),
    ],
)
def test_a_missing_package_is_named(
    protocol: str, module: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    for name in [name for name in fsspec.registry if name in ("s3", "gs", "http", "https")]:
        monkeypatch.delitem(fsspec.registry.target, name)
    with pytest.raises(UsageError) as raised:
        find([f"{protocol}://user:secret@bucket/logs"])
    assert said in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("s3://bucket/a@b.log", "s3://bucket/a@b.log"),
        ("s3://key:secret@bucket/x", "s3://bucket/x"),
        ("s3://key:se/cr/et@bucket/x", "s3://bucket/x"),
        ("https://user:se@cret@host:1/x", "https://host:1/x"),
        ("https://token@host/x", "https://host/x"),
        ("http://host:9000/a@b", "http://host:9000/a@b"),
        ("https://host/x?X-Amz-Credential=secret&b=secret", "https://host/x?..."),
        ("s3://bucket/events-?.jsonl", "s3://bucket/events-?.jsonl"),
        ("/logs/a:b@c?d=e", "/logs/a:b@c?d=e"),
    ],
)
def test_secrets_of_an_address_are_not_shown(given: str, told: str) -> None:
    assert shown(given) == told


class _Broken(io.RawIOBase):
    """A file of which the first bytes can be had."""

    def __init__(self, data: bytes, error: Exception) -> None:
        super().__init__()
        self._left, self._error = data, error

    def read(self, _: int = -1) -> bytes:
        data, self._left = self._left, b""
        if not data:
            raise self._error
        return data


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


class _Answer(Exception):
    def __init__(self, status: int) -> None:
        super().__init__("secret")
        self.status = status


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionResetError(104, "secret"), "Connection reset by peer"),
        (type("ClientPayloadError", (Exception,), {})("secret"), "the connection was lost"),
        (_caused(FileNotFoundError("secret"), _Answer(403)), "access is denied (403)"),
        (_caused(FileNotFoundError("secret"), _Answer(503)), "the server answered 503"),
        (PermissionError("secret"), "access is denied"),
        (TimeoutError("secret"), "it took too long"),
        (RuntimeError("secret"), "RuntimeError"),
    ],
)
def test_what_is_lost_in_the_middle_is_said_and_what_came_before_is_read(
    error: Exception,
    said: str,
    tmp_path: Path,
    store: Any,
    mx_metrics: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(store, ranks(tmp_path, processes=1, segments=1))
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    monkeypatch.setattr(type(store), "open", lambda *_, **__: _Broken(data, error))
    address = f"memory://bucket/logs/{path.name}"
    code, out, err = mx_metrics("replay", address)
    assert (code, err) == (1, f"mx-metrics: {address}: cannot be read: {said}\n")
    assert b"mx_load_seconds_count" in out
    assert mx_metrics("check", address)[0] == 3


def test_status_of_an_answer_that_botocore_keeps() -> None:
    error = OSError("secret")
    error.response = {"ResponseMetadata": {"HTTPStatusCode": 403}}  # type: ignore[attr-defined]
    assert remote._why(error) == "access is denied (403)"
