"""Values as people read them, whatever a log says.

A log may hold anything: markup, control characters, marks that turn the direction of what follows,
texts of a megabyte. What is shown is text, on one line, of a length that a page can bear.
"""

from __future__ import annotations

import re
from typing import Any

#: Characters of one value that are shown; an error's text has 500 at most.
LONGEST = 600

#: Stands for what there is none of.
NOTHING = "\N{EN DASH}"

#: What is not seen, or changes how its neighbours are seen: control characters, marks of
#: direction, separators of lines, what has no width, and halves of characters.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(value: Any, longest: int = LONGEST) -> str:
    """A value as a text in which each character is seen; the rest of a long one is counted."""
    text = NOTHING if value is None else str(value)
    rest = len(text) - longest
    shown = _UNSEEN.sub(_escape, text[:longest] if rest > 0 else text)
    return f"{shown}… ({rest} characters more)" if rest > 0 else shown


def seconds(value: float | None) -> str:
    """A duration: with a tenth below a thousand seconds, two more digits below one."""
    if value is None:
        return NOTHING
    if value < 1:
        return f"{value:.3f}".rstrip("0").rstrip(".") if value else "0"
    return (
        f"{value:.1f}"
        if value < 1000
        else f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    )


def size(value: float | None) -> str:
    """Bytes, with a unit."""
    if value is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def clock(timestamp: str | None) -> str:
    """The time of day of a line's timestamp, which is in UTC."""
    return NOTHING if timestamp is None else timestamp[11:19]


def percent(share: float) -> str:
    """A share, without digits that say nothing."""
    return f"{100 * share:.0f} %"


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] in "\t\n\r":
        return " "
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
