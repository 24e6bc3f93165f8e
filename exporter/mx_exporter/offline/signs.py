"""Whether there may be an event in bytes, quickly told: most lines of other programs hold none.

Never wrong when it says no.
"""

from __future__ import annotations

#: An event cannot be without its key ``event``, at any depth of quotes.
_EVENT = (b'event"', b"event\\")

#: How one begins as a list of its bytes.
_BYTES = b"123,"


def may_hold_event(text: bytes) -> bool:
    """Whether there may be an event, whole or broken, in a text of any number of lines."""
    if b"{" in text and b"event" in text and any(sign in text for sign in _EVENT):
        return True
    return _BYTES in text


def may_hold_part(lines: list[bytes], block: bytes) -> bool:
    """Whether there may be the first part of a line in lines.

    :param block: the same lines, joined.
    """
    if b"{" not in block:
        return False
    if b" P" in block and (b" P " in block or b" P:" in block):
        return True
    if b'"P"' in block or b"artial" in block or b"ARTIAL" in block or b"line-max" in block:
        return True
    # Docker's are only told by what they do not end with.
    return b'"log"' in block and not all(b'\\n"' in line for line in lines if line)
