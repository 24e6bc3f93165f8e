"""Tables of text: columns as wide as what is in them, lines as wide as the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: Between two columns.
_GAP = "  "

#: What stands for what there was no room for.
_MORE = "…"

#: Colours of the kinds of `loads.parts`, and of words. Whoever cannot tell them apart has letters.
_COLOURS = {
    "artifact_install": "35",
    "model_init": "34",
    "peer": "32",
    "failed": "31",
    "alone": "33",
    "open": "1;31",
    "bad": "31",
    "good": "32",
    "head": "1",
    "dim": "2",
}


class Style(NamedTuple):
    """How wide lines may be, and whether they have colours."""

    #: None: as wide as they are.
    width: int | None = None
    colour: bool = False

    def paint(self, text: str, name: str) -> str:
        """Text in the colour of that name."""
        code = _COLOURS.get(name) if self.colour else None
        return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


def harmless(text: str) -> str:
    """Text out of a log, made harmless for a terminal."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def cut(text: str, width: int | None) -> str:
    """Text that is at most so long."""
    if width is None or len(text) <= width:
        return text
    return text[: max(0, width - 1)] + _MORE


def cut_front(text: str, width: int | None) -> str:
    """Text that is at most so long, of which the end is kept."""
    if width is None or len(text) <= width:
        return text
    return _MORE + text[len(text) - max(0, width - 1) :]


def wrapped(words: Iterable[tuple[str, str]], width: int | None) -> list[str]:
    """Lines of words with a gap between.

    :param words: each as it is shown, and painted.
    """
    lines: list[str] = []
    room = 0
    for text, painted in words:
        if not lines or (width is not None and len(_GAP) + len(text) > room):
            lines.append(painted)
            room = (width or 0) - len(text)
        else:
            lines[-1] += _GAP + painted
            room -= len(_GAP) + len(text)
    return lines


def columns(head: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> list[str]:
    """Lines of a table without its last column's padding.

    :param right: a character a column: ``>`` for one whose texts stand to the right.
    """
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    aligned = right.ljust(len(head))
    return [
        _GAP.join(
            text.rjust(width) if side == ">" else text.ljust(width)
            for text, width, side in zip(line, widths, aligned, strict=True)
        ).rstrip()
        for line in lines
    ]
