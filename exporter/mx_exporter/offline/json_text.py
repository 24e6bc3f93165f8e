"""JSON texts out of a stream, whatever their size and however many lines they take.

A text that fits comes whole. One that is too large, or that ends in the middle, is opened: what
comes are its elements, and the elements of those that are too large themselves. So an answer of a
gigabyte that holds events is read in little memory.
"""

from __future__ import annotations

import re

import msgspec

from .json_value import Broken, Incomplete, goes_on, scan

#: Most bytes of a piece. Parsing one takes some six times its size.
MAX_PIECE = 4 * 1024 * 1024

#: How an event begins that nobody parsed and wrote again. It is never opened.
OURS = '{"event":'

#: Nobody packs deeper than this.
_MAX_OPEN = 32

#: What may stand between elements of a list that follow one another on a line, by how they begin.
_BETWEEN = {"[": ("],[", "], ["), "{": ("},{", "}, {")}

#: Characters of a list whose elements are taken together.
_TOGETHER = 256 * 1024

#: Bytes of an element up to which all parsers agree: larger ones may be too deep for one of them,
#: or hold a number that is too long.
_SMALL = 1600

#: Places that are tried as the end of an element.
_MAX_TRIES = 8

#: A text from which on it pays to see first whether it holds the end of a value.
_LARGE = 64 * 1024

_elements = msgspec.json.Decoder(list[msgspec.Raw])

_GAP = re.compile(r"[ \t\r\n,\ufeff]*")
_GAP_OF_A_LINE = re.compile(r"[ \t\r,]*")
_KEY = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"[ \t\r\n]*:[ \t\r\n]*')
_KEY_CUT = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*(?:\\|"[ \t\r\n]*|)\Z')


class JsonText:
    """Cuts the JSON texts that follow one another from a place of a stream on.

    Bytes are held as Latin-1, so that each has a place of its own and comes out as it was.

    :param number: of the line in which the first one begins.
    :param limit: most bytes of a piece.
    """

    def __init__(self, number: int, limit: int) -> None:
        self._text = ""
        self._limit = limit
        #: Brackets of the texts that were opened.
        self._open: list[str] = []
        #: Characters to wait for before another try.
        self._wanted = 0
        #: Elements of a list may be taken together: not yet tried with what is held.
        self._together = False
        #: Pieces were given since the outermost text was opened.
        self._given = False
        self._found: list[tuple[int, bytes]] = []
        self.number = number
        #: What follows the last text, once it is known that none follows.
        self.left: bytes | None = None
        #: `left` begins in the middle of a line that is too long.
        self.cut = False

    @property
    def fresh(self) -> bool:
        """Nothing is known yet of what it is."""
        return not self._open and not self._text

    def feed(self, block: bytes, *, final: bool = False) -> list[tuple[int, bytes]]:
        """Take the next block; return the pieces that are complete, each with its line's number.

        Once `left` is no longer None the stream goes on with that, by lines.

        :param final: the stream ends with this block.
        """
        self._text += block.decode("latin-1")
        self._together = True
        closed = b"\n}" in block or b"\n]" in block
        if len(self._text) < self._wanted and not (closed or final):
            return []
        at = 0
        while self.left is None:
            gap = _GAP if self._open else _GAP_OF_A_LINE
            start = gap.match(self._text, at).end()  # type: ignore[union-attr]  # always matches
            self._count(at, start)
            at = start
            if start == len(self._text) and not final:
                break
            after = self._step(start, final)
            if after is None:
                break
            self._count(start, after)
            at = after
        self._text = self._text[at:]
        self._wanted = min(2 * len(self._text), self._limit + 1)
        found, self._found = self._found, []
        return found

    def _count(self, start: int, end: int) -> None:
        self.number += self._text.count("\n", start, end)

    def _step(self, at: int, final: bool) -> int | None:
        """Go on by one bracket, or one value with its key; return where, None: more is needed."""
        text = self._text
        char = text[at : at + 1]
        if not self._open:
            if char not in ("{", "["):
                return self._leave(at)
            self._given = False
            return self._value(at, at, final)
        if char in ("}", "]"):
            self._open.pop()
            if not self._open:
                self._close()
            return at + 1
        if self._open[-1] == "[":
            together = self._several(at) if self._together else None
            return self._value(at, at, final) if together is None else together
        key = _KEY.match(text, at)
        if key is not None and key.end() - at <= self._limit:
            return self._value(at, key.end(), final)
        more = not final and len(text) - at <= self._limit and _KEY_CUT.match(text, at)
        return None if more else self._leave(at)

    def _several(self, at: int) -> int | None:
        """The elements of a list from a place on that are at their end, and on one line; returns
        where they end, None: they are not taken together.

        What is cut too early or too late does not parse.
        """
        self._together = False
        text = self._text
        for between in _BETWEEN.get(text[at : at + 1], ()):
            end = at + min(self._limit, _TOGETHER)
            for _ in range(_MAX_TRIES):
                end = text.rfind(between, at, end)
                if end < 0:
                    break
                try:
                    found = _elements.decode(b"[%b]" % text[at : end + 1].encode("latin-1"))
                except (msgspec.MsgspecError, RecursionError):
                    continue
                if "\n" in text[at:end]:
                    return None
                elements = list(map(bytes, found))
                large = next((each for each in elements if len(each) > _SMALL), None)
                if large is not None:
                    del elements[elements.index(large) :]
                    end = text.find(large.decode("latin-1"), at) - 1
                if not elements:
                    return None
                self._found += [(self.number, each) for each in elements]
                self._given = self._together = True
                return end + 1
        return None

    def _value(self, start: int, at: int, final: bool) -> int | None:
        """A value that stands at ``at``, and its key, if any, at ``start``."""
        text, limit = self._text, self._limit
        room = len(text) - at <= limit
        try:
            if len(text) - at > _LARGE and goes_on(text[at:]):
                raise Incomplete
            value, end = scan(text, at)
        except Incomplete:
            if room and not final:
                return None
        except Broken:
            pass
        else:
            if self._open and end == len(text) and not final and room:
                return None  # a number may go on
            if end - at <= limit:
                if type(value) in (dict, list) or start == at or "proc" in text[at:end]:
                    self._give(text[at:end])
                return end
        if text.startswith(OURS, at) or text[at : at + 1] not in ("{", "["):
            return self._break_off(at, final)
        if len(self._open) == _MAX_OPEN:
            return self._leave(at)
        self._open.append(text[at])
        self._together = True
        return at + 1

    def _break_off(self, at: int, final: bool) -> int | None:
        """Give what is no value, or too large for one and not to be opened, and end here."""
        newline = self._text.find("\n", at, at + self._limit + 1)
        if newline < 0 and len(self._text) - at <= self._limit and not final:
            return None
        self.cut = newline < 0
        end = newline if newline >= 0 else min(len(self._text), at + self._limit)
        if end > at:
            self._give(self._text[at:end])
        return self._leave(end)

    def _give(self, piece: str) -> None:
        self._found.append((self.number, piece.encode("latin-1")))
        self._given = True

    def _close(self) -> None:
        """A text that was opened and held nothing is a line all the same."""
        if not self._given:
            self._give("{}")

    def _leave(self, at: int) -> int:
        if self._open:
            self._close()
        self._open.clear()
        self.left = self._text[at:].encode("latin-1")
        return at
