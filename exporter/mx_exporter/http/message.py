"""A request and its answer, as the connection hands them on. No sockets, no bytes of HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

TEXT = "text/plain; charset=utf-8"


class Request(NamedTuple):
    """A client's request. Bodies are not read.

    :ivar path: without the query, its escapes undone.
    :ivar headers: by lower-case name; one that comes twice is one list.
    :ivar query: what stands behind the path's question mark, as it came.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    query: str = ""

    @property
    def page(self) -> str:
        """Which page the path names: with a slash at its end, as some monitors have it, the same as
        without."""
        return self.path.removesuffix("/") or "/"


class Answer(NamedTuple):
    """The answer to a request; the connection adds ``Date``, ``Content-Length``, ``Connection``."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()


#: What answers requests.
App = Callable[[Request], Awaitable[Answer]]


def plain(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Answer:
    """An answer of one line."""
    return Answer(text.encode() + b"\n", TEXT, status, headers)
