"""Opening a segment follows no link, never blocks, and leaves nothing open."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from mx_log.locks import NotRegular, open_regular


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Also one that was put in a segment's place after the directory was listed."""
    (tmp_path / "secret").write_bytes(b"line\n")
    (tmp_path / "link").symlink_to("secret")
    with pytest.raises(OSError, match="link") as failed:
        open_regular(str(tmp_path / "link"))
    assert failed.value.errno == errno.ELOOP


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
def test_what_is_no_regular_file_is_refused_at_once(
    kind: str, relative: bool, tmp_path: Path
) -> None:
    path = tmp_path / "odd"
    if kind == "fifo":
        os.mkfifo(path)  # nobody writes to it: opening it would wait for ever
    elif kind == "directory":
        path.mkdir()
    else:
        path = Path(os.devnull)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with pytest.raises(NotRegular, match=path.name):
            open_regular(path.name, folder) if relative else open_regular(str(path))
    finally:
        os.close(folder)


def test_a_socket_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "odd"))
        with pytest.raises(OSError):  # noqa: PT011 - the kernel refuses it in words of its own
            open_regular(str(tmp_path / "odd"))


def test_a_child_does_not_inherit_it(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(b"line\n")
    fd = open_regular(str(tmp_path / "segment"))
    try:
        assert not os.get_inheritable(fd)
        assert os.pread(fd, 10, 0) == b"line\n"
    finally:
        os.close(fd)
