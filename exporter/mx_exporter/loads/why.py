"""Why a load took its time, or came to its end, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from .model import Attempt, Load, Span
from .parts import ALONE, NONE, Part, parts

#: A part of a load that is shorter than this share of it explains nothing.
_SHARE = 0.1

#: Exit codes of processes that a signal told to end.
_SIGNALS = {"130": "SIGINT", "137": "SIGKILL", "143": "SIGTERM"}

#: Longest text of an error that a sentence quotes.
_QUOTED = 120


def why(load: Load, given: Sequence[Part] | None = None) -> str:
    """The sentence; empty where nothing is known to tell.

    :param given: its `parts`, for who has them already.
    """
    given = parts(load) if given is None else given
    told = [_end(load), *_attempts(load), *_rest(load, given), *_caveats(load)]
    return "; ".join(part for part in told if part)


def seconds(value: float) -> str:
    """Seconds as a person reads them."""
    return f"{value:.1f} s" if value < 1000 else f"{value:,.0f} s"


def where(load: Load) -> str:
    """In which phase a load is, or was when its log ends; of which peer, where that is known."""
    attempt = load.open_attempt
    if attempt is not None:
        peer = f" from {attempt.peer}" if attempt.peer else " from a source"
        phase = _open(attempt.phases)
        return f"in {phase.name}{peer}" if phase else f"in an attempt{peer}"
    phase = load.open_phase
    return f"in {phase.name}" if phase else "between two phases"


def open_since(load: Load) -> float | None:
    """Seconds after its begin at which that phase began."""
    attempt = load.open_attempt
    inner = _open(attempt.phases) if attempt else None
    phase = inner or load.open_phase
    return phase.at if phase else attempt.at if attempt else None


def _end(load: Load) -> str:
    """What became of it, unless that is that it ended well."""
    if load.outcome == "killed":
        ended = ", which never ended" if open_since(load) is not None else ", it never ended"
        return where(load) + ended
    if load.outcome == "running":
        since = open_since(load)
        return where(load) + ("" if since is None else f" since {seconds(load.elapsed - since)}")
    if load.outcome == "unknown":
        return f"{where(load)}, and no event says how it ended"
    if load.outcome == "error":
        failed = _failed(load)
        place = "" if failed is None else f" after {seconds(failed[1].seconds or 0)} {failed[0]}"
        return error_of(load) + place
    return ""


def error_of(load: Load | Attempt | Span) -> str:
    """Type and text of an error."""
    text = (load.error or "")[:_QUOTED]
    if load.error_type == "SystemExit" and text in _SIGNALS:
        text = f"{text} ({_SIGNALS[text]})"
    if load.error_type and text:
        return f"{load.error_type}: {text}"
    return load.error_type or text or "error"


def _failed(load: Load) -> tuple[str, Span] | None:
    """Where the error of a load came from: the innermost phase that ended in it."""
    for attempt in reversed(load.attempts):
        for phase in reversed(attempt.phases):
            if phase.error_type and phase.error_type == load.error_type:
                peer = f" from {attempt.peer}" if attempt.peer else ""
                return f"in {phase.name}{peer}", phase
    for phase in reversed(load.phases):
        if phase.error_type:
            return f"in {phase.name}", phase
    return None


def _attempts(load: Load) -> list[str]:
    """The attempts that gave nothing, and the one that gave the weights."""
    lost = [
        attempt
        for attempt in load.attempts
        if attempt.seconds is not None and not attempt.succeeded
    ]
    if load.outcome == "error" and lost and lost[-1] is load.attempts[-1]:
        failed = _failed(load)
        if failed is not None and failed[1] in lost[-1].phases:
            lost = lost[:-1]  # its end was told already
    told = []
    missed = [attempt for attempt in lost if attempt.result == "metadata_miss"]
    tried = [attempt for attempt in lost if attempt.result != "metadata_miss"]
    if tried:
        peers = ", ".join(attempt.peer or "a source" for attempt in tried)
        took = seconds(sum(attempt.seconds or 0.0 for attempt in tried))
        told.append(f"{peers} {_how(tried)} ({took})")
    if missed:
        peers = ", ".join(dict.fromkeys(attempt.peer or "a source" for attempt in missed))
        told.append(f"the metadata of {peers} could not be had")
    for attempt in load.attempts:
        if attempt.succeeded:
            if attempt.received and attempt.received != "complete":
                told.append(f"the receive from {attempt.peer or 'a source'} was {attempt.received}")
            elif (attempt.seconds or 0.0) > _SHARE * load.elapsed:
                then = "then " if tried or missed else ""
                peer = attempt.peer or "a source"
                told.append(f"{then}{peer} {seconds(attempt.seconds or 0.0)}")
    return told


def _how(tried: list[Attempt]) -> str:
    texts = [f"{attempt.error or ''} {' '.join(attempt.failures)}".lower() for attempt in tried]
    if all("timed out" in text or "timeout" in text for text in texts):
        return "timed out"
    if not any(attempt.result or attempt.error_type for attempt in tried):
        return "given up"
    return "failed"


def _rest(load: Load, given: Sequence[Part]) -> list[str]:
    """What else took much of its time."""
    told = []
    if load.selections and not load.attempts:
        result = load.selections[-1].result
        if result == "empty":
            told.append("no source was listed")
        elif result not in (None, "ok"):
            told.append(f"the sources could not be listed ({result})")
        elif any(count == 0 for count in load.selections[-1].counts.values()):
            told.append("no source fits")
    least = _SHARE * load.elapsed
    alone = sum([part.seconds for part in given if part.kind == ALONE])
    if alone > least:
        told.append(f"{seconds(alone)} without a peer")
    installed = sum(
        [each.seconds or 0.0 for each in load.phases if each.name == "artifact_install"]
    )
    if installed > least:
        told.append(f"artifacts {seconds(installed)}")
    unnamed = sum([part.seconds for part in given if part.kind == NONE])
    if unnamed > least and load.phases:
        told.append(f"{seconds(unnamed)} outside of all phases")
    return told


def _caveats(load: Load) -> list[str]:
    told = []
    if load.missing:
        told.append(f"{load.missing} of its events missing")
    if load.clock_stepped:
        told.append("the clock was set meanwhile")
    return told


def _open(spans: tuple[Span, ...]) -> Span | None:
    running = [span for span in spans if span.seconds is None]
    return running[-1] if running else None
