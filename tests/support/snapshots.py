"""Snapshots taken apart and put together again, beside the code that does it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import orjson


def content_of(data: bytes) -> dict[str, Any]:
    """The content of a snapshot."""
    _, _, content = data.partition(b"\n")
    found: dict[str, Any] = orjson.loads(content)
    return found


def as_json(value: Any) -> bytes:
    """A value as a snapshot has it; it may hold numbers that no snapshot has."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def sealed(content: dict[str, Any] | bytes, **seal: Any) -> bytes:
    """A snapshot of some content, of whatever values; ``seal`` replaces keys of its first line."""
    packed = content if isinstance(content, bytes) else as_json(content) + b"\n"
    digest = hashlib.sha256(packed).hexdigest()
    line = {"format": 2, "bytes": len(packed), "sha256": digest, **seal}
    return orjson.dumps(line) + b"\n" + packed
