"""Records to events, wherever in a record they lie.

An event is an object that has a name, a process and a number. It is looked for at the top, under
any key, in text under any key, and behind whatever stands before it on a line, as deep as anybody
packs. What holds none is a line of somebody else, and no fault. What begins as an event and is
broken is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from mx_log.schema import MAX_LINE_BYTES

from ..core.decode import REASONS, Decoder, Event, Rejected
from .json_value import Broken, Incomplete, is_cut, parsed, scan
from .marks import LAST, NEVER_PARTS, PART, UNMARKED, Around, Mark, longest_of, mark_of, origin_of
from .otlp import plain_value
from .parts import Parts
from .records import AROUND, OURS
from .rewritten import as_written, is_event, line_of
from .signs import may_hold_event

#: Nobody packs deeper than this.
_MAX_DEPTH = 12

#: Places of one line at which an object may begin.
_MAX_TRIES = 64

#: Pairs of a list for which it pays to take them together.
_MANY = 8

_CRI = re.compile(
    rb"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*) (?P<stream>stdout|stderr) "
    rb"(?P<tag>[FP])(?::\S*)?(?: (?P<payload>.*))?",
    re.DOTALL,
)

#: Where an object may begin, quoted or not, or a list.
_BEGINNING = re.compile(r'\{\s*"|\{\\+"|\[\s*[{"]')

#: The same as CSV quotes it.
_CSV = re.compile(r'\{""(?!\s*:)')

#: How an event begins, at any depth of quotes, that was not parsed and written again.
_EVENT_BEGINS = re.compile(rb'\{\\*"+event\\*"+:')

_TOO_LONG = Rejected("too_long", REASONS["too_long"])

#: What a line gave: an event, or why there is none.
Entry: TypeAlias = Event | Rejected


class Finder:
    """Finds the events of one stream of records; holds the parts that wait for their rest."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.parts = Parts()
        self._number = 0
        self._held = False

    def find(self, record: bytes, number: int = 0) -> list[Entry] | None:
        """What a record holds or completes. None: it is a line of somebody else. Empty: it is
        blank, or waits.

        :param number: of its line.
        """
        bare = record.strip(AROUND + b"\n")
        if not bare:
            return []
        self._number, self._held = number, False
        found = list(self._text(record, (), UNMARKED, 0))
        while self.parts.dropped:
            found += self.finish(self.parts.dropped.pop().text, torn=True) or []
        return found if found or self._held else None

    def finish(self, text: bytes, *, torn: bool) -> list[Entry] | None:
        """What a text is that waits for nothing any more. None: a line of somebody else.

        :param torn: it is a part whose rest, or whose beginning, never came.
        """
        found = list(self._whole(text, (), 0))
        if torn:
            found = [_TORN if isinstance(entry, Rejected) else entry for entry in found]
        return found or None

    def _text(self, text: bytes, around: Around, mark: Mark, depth: int) -> Iterator[Entry]:
        """A text of one or several lines."""
        if depth > _MAX_DEPTH:
            return
        inner = text.strip(b"\n")
        if b"\n" in inner:
            value = parsed(inner)
            if type(value) in (dict, list):
                yield from self._value(value, inner, around, depth)
                return
            for line in inner.split(b"\n"):
                yield from self._line(line, around, mark, depth)
        else:
            yield from self._line(text.removesuffix(b"\n"), around, mark, depth)

    def _line(self, line: bytes, around: Around, mark: Mark, depth: int) -> Iterator[Entry]:
        bare = line.strip(AROUND)
        match = _CRI.fullmatch(line.lstrip(AROUND).removesuffix(b"\r"))
        if match is not None and not (mark.partial and (mark.told or _is_cut_off(match))):
            envelope = {"stream": match["stream"].decode()}
            told = PART if match["tag"] == b"P" else LAST
            yield from self._text(
                match["payload"] or b"", (*around, (envelope, "")), told, depth + 1
            )
            return
        value = parsed(bare) if bare[:1] in (b"{", b"[") else None
        if value is not None:  # whole, and no part
            yield from self._value(value, bare, around, depth)
            return
        if mark.rest or (self.parts and around):
            origin = origin_of(around)
            text = line.removesuffix(b"\r") if not mark.partial else line
            if self.parts.waits(origin):
                yield from self._go_on(origin, text, mark, depth)
                return
            if self.parts.is_open(origin):
                self._held = True
                self.parts.head(origin, text, self._number, partial=mark.partial)
                return
        if mark.rest:
            first = mark.head and self.parts.is_first(origin)
            if mark.partial and is_cut(text) and not (first and bare[:1] != b"{"):
                self._held = True
                if not self.parts.hold(origin, text, self._number):
                    yield _TOO_LONG
                return
            found = [] if first and mark.partial else list(self._whole(bare, around, depth))
            if first and not found and bare:
                self._held = True
                self.parts.head(origin, text, self._number, partial=mark.partial)
                return
            self.parts.meet(origin)
            yield from found
            return
        if bare:
            yield from self._whole(bare, around, depth)

    def _go_on(self, origin: str, text: bytes, mark: Mark, depth: int) -> Iterator[Entry]:
        self._held = True
        if not self.parts.hold(origin, text, self._number):
            yield _TOO_LONG
        if not mark.partial:
            part = self.parts.take(origin)
            if part is not None:
                found = list(self._whole(part.text, (), depth))
                self._held = False
                yield from found

    def _whole(self, text: bytes, around: Around, depth: int) -> Iterator[Entry]:
        """A text that is no part, with whatever stands before, between and behind its events."""
        if not may_hold_event(text):
            return
        if depth > _MAX_DEPTH:
            return
        shown = text.decode("latin-1")
        at = tries = 0
        broken = False
        while tries < _MAX_TRIES:
            beginning = _BEGINNING.search(shown, at)
            if beginning is None:
                break
            at = beginning.start()
            if _CSV.match(shown, at):
                yield from self._whole(text[at:].replace(b'""', b'"'), around, depth + 1)
                return
            # Within quotes it goes on to the quote that ends them.
            quote = '"' if shown.startswith("{\\", at) else ""
            try:
                _, end = scan(quote + shown[at:] if quote else shown, 0 if quote else at)
            except (Broken, Incomplete):
                broken = broken or _EVENT_BEGINS.match(text, at) is not None
                at += 1
                tries += 1
                continue
            end += at - 1 if quote else 0
            piece = quote.encode() + text[at:end]
            found = list(self._value(parsed(piece), piece, around, depth))
            yield from found
            tries = 0 if found else tries + 1
            at = end
        if broken:
            yield self._broken(text)

    def _broken(self, text: bytes) -> Rejected:
        """Why what begins as an event is none."""
        match = _EVENT_BEGINS.search(text)
        if len(text) >= MAX_LINE_BYTES:
            return _TOO_LONG
        judged = self._decoder.decode_line(text[match.start() :] if match else text)
        return judged if isinstance(judged, Rejected) else Rejected("not_json", REASONS["not_json"])

    def _value(self, value: Any, raw: bytes, around: Around, depth: int) -> Iterator[Entry]:
        """A value that was parsed. ``raw``: as it stands in the text, if it does."""
        if depth > _MAX_DEPTH:
            return
        if type(value) is dict:
            if type(value.get("event")) is str and ("proc" in value or "seq" in value):
                yield self._event(value, raw)
                return
            mark = mark_of(value)
            longest = longest_of(value) if mark.rest else ""
            for key, each in value.items():
                within = (*around, (value, key))
                if type(each) is str:
                    told = UNMARKED if key in NEVER_PARTS else mark
                    told = told if key == longest else told._replace(head=False)
                    yield from self._under(each, within, told, depth)
                elif type(each) in (dict, list):
                    yield from self._value(each, b"", within, depth + 1)
        elif type(value) is list:
            yield from self._list(value, around, depth)
        elif type(value) is str:
            yield from self._under(value, around, UNMARKED, depth)

    def _list(self, values: list[Any], around: Around, depth: int) -> Iterator[Entry]:
        if values and type(values[0]) is int:
            yield from self._bytes(values, around, depth)
            return
        if len(values) >= _MANY and _are_pairs(values):
            yield from self._pairs(values, around, depth)
            return
        plain = plain_value(values)
        if plain is not None:
            yield from self._value(plain, b"", around, depth + 1)
            return
        for each in values:
            if type(each) is str:
                yield from self._under(each, around, UNMARKED, depth)
            elif type(each) in (dict, list):
                yield from self._value(each, b"", around, depth + 1)

    def _pairs(self, values: list[list[str]], around: Around, depth: int) -> Iterator[Entry]:
        """Pairs of a time and a line, as Loki answers with; many at a time."""
        texts = [text for _, text in values]
        lines = "\n".join(texts).encode("utf-8", "surrogatepass").split(b"\n")
        if len(lines) == len(values) and all(line.startswith(OURS) for line in lines):
            events = self._decoder.decode(lines)
        else:
            events = [_TORN] * len(values)
        for text, line, event in zip(texts, lines, events, strict=False):
            if isinstance(event, Rejected) or len(line) >= MAX_LINE_BYTES:
                yield from self._under(text, around, UNMARKED, depth)
            else:
                yield event

    def _bytes(self, values: list[Any], around: Around, depth: int) -> Iterator[Entry]:
        """A list of bytes, as journald writes a message that it takes for no text."""
        try:
            text = bytes(values)
        except (TypeError, ValueError):
            return
        yield from self._text(text, around, UNMARKED, depth + 1)

    def _under(self, text: str, around: Around, mark: Mark, depth: int) -> Iterator[Entry]:
        """A text under a key."""
        if mark.rest or self.parts or "event" in text or "123," in text or " P" in text:
            yield from self._text(text.encode("utf-8", "surrogatepass"), around, mark, depth + 1)

    def _event(self, value: dict[str, Any], raw: bytes) -> Entry:
        line = raw or line_of(value)
        if len(line) >= MAX_LINE_BYTES:
            return _TOO_LONG
        found = self._decoder.decode_line(line)
        if isinstance(found, Rejected) and is_event(value):
            other = as_written(value)
            again = self._decoder.decode_line(line_of(other)) if other is not None else None
            if isinstance(again, Event):
                return again
        return found if found is not None else _TORN


_TORN = Rejected("torn", REASONS["torn"])


def _are_pairs(values: list[Any]) -> bool:
    return all(
        type(each) is list
        and len(each) == 2
        and type(each[0]) is type(each[1]) is str
        and each[0].isdigit()
        for each in values
    )


def _is_cut_off(match: re.Match[bytes]) -> bool:
    """Whether a line of CRI says that it is whole, and is not: somebody cut it later."""
    return match["tag"] == b"F" and is_cut(match["payload"] or b"")
