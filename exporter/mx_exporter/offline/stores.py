"""What a place must offer that logs are read from, wherever that is: this machine, standard input,
an address. Commands know no more of it than this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import IO, NamedTuple, Protocol

from ..errors import MxError

#: How an address begins.
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)

#: The user and the password in an address, also where they hold a slash. A port is none.
_USER = re.compile(r"(?<=://)(?:[^/]*@|(?![^/]*:\d+(?:/|$))[^/@]*:[^@]*@)")

#: The query of an address, which may be signed.
_QUERY = re.compile(r"\?[\w.~%-]+=.*", re.DOTALL)


def shown(path: str) -> str:
    """A path or an address as text that any terminal and JSON can take, without what only its
    owner may know."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return _QUERY.sub("?...", _USER.sub("", text)) if ADDRESS.match(text) else text


class Unreadable(MxError):
    """A source cannot be read, or not to its end. ``str()`` says why."""

    def __init__(self, why: str, *, ours: bool = True, vanished: bool = False) -> None:
        super().__init__(why)
        #: False for what only bears a segment's name (a link, a FIFO, a directory).
        self.ours = ours
        #: There was no such file any more.
        self.vanished = vanished


class Entry(NamedTuple):
    """A file or a directory that a store has."""

    path: str
    name: str
    #: Bytes in it, 0 when that cannot be told.
    size: int = 0
    is_directory: bool = False


class Stream(Protocol):
    """A source that is open. All methods but `close` raise `Unreadable`."""

    def read(self, size: int) -> bytes:
        """The next bytes, ``size`` at most; none at the end."""

    def whole(self) -> IO[bytes] | None:
        """The same as a file to be read in any order; None: it can be read but once."""

    def close(self) -> None:
        """Let go of it, and of the file that `whole` gave."""


class Store(Protocol):
    """Where sources lie. It goes from process to process, and each opens its sources itself."""

    @property
    def live(self) -> bool:
        """Whether writers lock their segments there and exporters compact."""

    def matching(self, argument: str) -> list[Entry]:
        """What an argument names: a file, a directory, or what a pattern matches. What exists is
        never taken for a pattern.

        :raises UsageError: nothing.
        :raises MxError: that cannot be told.
        """

    def entries(self, directory: str) -> Iterator[Entry]:
        """What a directory holds.

        :raises MxError: it cannot be listed.
        """

    def identity(self, path: str) -> str:
        """The same for each way of naming a file, links aside."""

    def real(self, path: str) -> str:
        """The same for each way of naming a file, also by a link."""

    def parent(self, path: str) -> str:
        """The directory that a file lies in, however it is named."""

    def lasts(self, path: str) -> bool:
        """Whether it can be read more than once."""

    def open(self, path: str, *, listed: bool) -> Stream:
        """Open a file, without ever waiting for somebody to write it.

        :param listed: it was found in a directory, and is not followed when it is a link.
        :raises Unreadable: that cannot be done.
        """
