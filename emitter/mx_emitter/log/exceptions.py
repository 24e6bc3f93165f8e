"""Exceptions as fields of an event."""

from __future__ import annotations

import re

from .encode import text, type_name

#: Longest ``error``, in characters.
MAX_ERROR = 500

# What stands before the last @ of an authority, well-formed or not: a password may hold what it
# should have escaped. A path may hold an @ as well, so slashes are passed over only behind a colon
# that no port follows, and blanks only within one line.
_CREDENTIALS = (
    re.compile(r"(?<=:)([/\\]{1,3})[^\s/\\]*@"),
    re.compile(r"(?<=:)([/\\]{1,3})[^\s/\\:@]*:(?!\d*(?:[/\\\s]|$))[^\s@][^\n@]{0,200}@(?=[\w\[])"),
    # Without a scheme, as proxies are named; but no digest of an image.
    re.compile(
        r"()(?<![\w/\\])[^\s:/\\@'\"<>(=]{1,256}:[^\s@'\"<>/\\]{1,256}@(?!sha\d+:)(?=[\w\[])"
    ),
)

# The last part of a path, then the query or the fragment. It needs no scheme before it: urllib3
# reports "Max retries exceeded with url: /path?token=...". A quote ends it, unless text follows.
_REST = r"(?:[^\s'\"<>]|['\"](?=\w))*"
_QUERIES = (
    re.compile(rf"(/[^\s/?#'\"<>]*)[?#]{_REST}"),
    # Without a path, what has the look of a parameter.
    re.compile(rf"()[?#&][\w.~%+\[\]-]+={_REST}"),
)


def without_secrets(message: str) -> str:
    """``message`` with the queries, fragments and credentials of URLs stripped."""
    for pattern in _CREDENTIALS:
        message = pattern.sub(r"\1", message)
    for pattern in _QUERIES:
        message = pattern.sub(r"\1", message)
    return message


def describe(error: BaseException) -> dict[str, str]:
    """The fields ``error_type`` and ``error`` of an exception. Never raises."""
    # Bounded before it is searched, and far above what is kept, so that a URL cut in two by the
    # first bound does not show.
    message = without_secrets(text(error)[: 40 * MAX_ERROR])
    return {"error_type": type_name(type(error)), "error": message[:MAX_ERROR]}
