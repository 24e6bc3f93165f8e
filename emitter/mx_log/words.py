"""Words of messages."""

from __future__ import annotations


def counted(count: int, one: str, many: str | None = None) -> str:
    """``count`` and what is counted: ``1 segment``, ``2 segments``. ``many`` is the plural where it
    is not ``one`` with an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"
