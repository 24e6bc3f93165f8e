"""Conditions under which a comparison fails: ``receive.p50 > +20%``."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import UsageError
from ..loads.compare import QUANTILES, TOO_FEW
from .compare import Comparison

_GATE = re.compile(
    r"\s*(?P<name>[\w-]+)(?:\.p(?P<q>\d+))?\s*(?P<op>[<>])\s*"
    r"(?P<number>[+-]?\d+(?:\.\d+)?)\s*(?P<unit>%|s|)\s*"
)

#: Outcomes that can be counted, by the word for them.
_COUNTED = {"failed": "error", "killed": "killed"}


class Gate(NamedTuple):
    """One condition."""

    text: str
    name: str
    #: None: it counts loads.
    q: float | None
    above: bool
    number: float
    #: ``%`` or ``s`` of change, where ``number`` has a sign; else seconds, or loads.
    unit: str
    signed: bool


class Verdict(NamedTuple):
    """What came of a gate."""

    gate: Gate
    failed: bool
    #: A sentence.
    said: str
    #: There was too little to judge it by.
    skipped: bool = False


def parse_gate(text: str) -> Gate:
    """Read a condition.

    :raises UsageError: it is none.
    """
    match = _GATE.fullmatch(text)
    wrong = UsageError(
        f"--fail: bad value {text!r}: expected a figure and a bound, such as 'receive.p50 > +20%', "
        "'load.p95 > +5s', 'load.p50 > 60s' or 'failed > 0'"
    )
    if match is None:
        raise wrong
    name, unit, number = match["name"], match["unit"], match["number"]
    signed = number[0] in "+-"
    quantile = None if match["q"] is None else int(match["q"]) / 100
    if (name in _COUNTED) != (quantile is None) or (unit == "%" and not signed):
        raise wrong
    if name in _COUNTED and unit:
        raise wrong
    if quantile is not None and (quantile not in QUANTILES or not unit):
        raise wrong
    return Gate(text.strip(), name, quantile, match["op"] == ">", float(number), unit, signed)


def judge(gate: Gate, found: Comparison) -> Verdict:
    """What comes of a gate. One on a change fails only where a difference is shown, so that chance
    does not fail it.

    :raises UsageError: there is no such figure on either side.
    """
    if gate.q is None:
        counts = [side.outcomes[_COUNTED[gate.name]] for side in (found.before, found.after)]
        value = float(counts[1] - counts[0] if gate.signed else counts[1])
        return Verdict(gate, _beyond(gate, value), f"{gate.name} {counts[0]} → {counts[1]}")
    named = f"{gate.name}.p{gate.q * 100:.0f}"
    rows = [row for row in found.rows if row.figure.name == gate.name]
    if not rows:
        names = ", ".join(dict.fromkeys(row.figure.name for row in found.rows))
        raise UsageError(f"--fail: there is no figure {gate.name}; there are {names}")
    (one,) = (each for each in rows[-1].differences if each.q == gate.q)
    if one.after is None or (gate.signed and one.before is None):
        return Verdict(gate, False, f"{named}: nothing to judge it by", True)
    if not gate.signed:
        return Verdict(gate, _beyond(gate, one.after), f"{named} {one.after:.1f} s")
    if one.verdict == TOO_FEW:
        return Verdict(gate, False, f"{named}: too few loads to say", True)
    change = one.change or 0.0
    value = change if gate.unit == "s" else 100 * (one.ratio or 0.0)
    said = f"{named} {value:+.1f} s" if gate.unit == "s" else f"{named} {value:+.0f} %"
    low, high = one.interval or (0.0, 0.0)
    shown = low > 0 if gate.above else high < 0
    failed = _beyond(gate, value) and (shown or (gate.number < 0) == gate.above)
    return Verdict(gate, failed, said if failed or shown else f"{said}, no difference shown")


def _beyond(gate: Gate, value: float) -> bool:
    return value > gate.number if gate.above else value < gate.number
