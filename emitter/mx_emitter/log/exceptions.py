"""Exceptions as fields of an event."""

from __future__ import annotations

import re

from .encode import text, type_name

#: Longest ``error``, in characters.
MAX_ERROR = 500

_CREDENTIALS = re.compile(r"://[^\s/'\"<>]*@")
# The last part of a path, then the query. It needs no scheme before it: urllib3 reports
# "Max retries exceeded with url: /path?token=...".
_QUERY = re.compile(r"(/[^\s/?'\"<>]*)\?[^\s'\"<>]*")


def without_secrets(message: str) -> str:
    """``message`` with the queries and the credentials of URLs stripped."""
    return _QUERY.sub(r"\1", _CREDENTIALS.sub("://", message))


def describe(error: BaseException) -> dict[str, str]:
    """The fields ``error_type`` and ``error`` of an exception. Never raises."""
    # Bounded before it is searched, and far above what is kept, so that a URL cut in two by the
    # first bound does not show.
    message = without_secrets(text(error)[: 40 * MAX_ERROR])
    return {"error_type": type_name(type(error)), "error": message[:MAX_ERROR]}
