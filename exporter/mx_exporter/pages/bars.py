"""A load's parts as a bar, to a scale that all bars of a page share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..loads.parts import KINDS, Part
from . import shown

#: Class of a kind in the style sheet, where its letter is none that a class can have.
_CSS = {".": "n", ">": "r"}

#: Share of the bar, in percent, from which on a part is seen, and has room for its letter.
_SEEN, _ROOM = 0.05, 1.6


class Piece(NamedTuple):
    """A rectangle; positions in percent of the bar's width."""

    x: str
    width: str
    middle: str
    css: str
    letter: str


class Bar(NamedTuple):
    """What a bar shows, and says to those who do not see it."""

    pieces: tuple[Piece, ...]
    label: str


class Kind(NamedTuple):
    """A row of the key."""

    letter: str
    css: str
    text: str


#: What the letters mean.
KEY = tuple(Kind(letter, _CSS.get(letter, letter), doc) for letter, doc in KINDS.values())


def bar(parts: Iterable[Part], scale: float) -> Bar:
    """The bar of a load's parts.

    :param scale: seconds that the whole width stands for.
    """
    pieces: list[Piece] = []
    said: list[str] = []
    for part in parts:
        width = 100 * part.seconds / scale if scale > 0 else 0.0
        letter, doc = KINDS[part.kind]
        said.append(f"{doc} {shown.seconds(part.seconds)} s")
        if width >= _SEEN:
            at = 100 * part.at / scale
            pieces.append(
                Piece(
                    x=f"{at:.2f}",
                    width=f"{width:.2f}",
                    middle=f"{at + width / 2:.1f}",
                    css=_CSS.get(letter, letter),
                    letter=letter if width >= _ROOM else "",
                )
            )
    return Bar(tuple(pieces), ", ".join(said))
