"""What the exporter says of itself: the directory, what is wrong, the books, the settings in use.

In sections, of which one that cannot be made is left out alone. Those that tell of trouble stand on
the front page as well.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from mx_log.files import SNAPSHOT_NAME
from mx_log.schema import FORMAT, VERSION
from mx_log.words import counted

from ..config import OPTIONS, Settings
from ..directory.diagnosis import CAUSES, PATTERN, Diagnosis, kinds_in, user_text
from . import site

LINKS = (
    ("/", "the loads"),
    ("/loads.json", "the same for scripts"),
    ("/metrics", "the metrics, for Prometheus"),
    ("/healthz", "whether the process works"),
    ("/readyz", "whether the directory was read once"),
)


class Seen(NamedTuple):
    """What was read so far, in numbers. ``logged`` is the sum of the five after it."""

    segments: int
    writers_alive: int
    writers_gone: int
    logged: int
    folded: int
    refused: int
    skipped: int
    rejected: int
    lost: int
    rejected_lines: int
    duplicates: int
    unread_bytes: int
    last_event: str
    drain_seconds: float
    #: What our files take, and may take.
    our_bytes: int
    limit_bytes: int
    #: Why the snapshot cannot be used; empty when it can, or there is none.
    snapshot_trouble: str
    #: Why the directory cannot be compacted; empty when it can.
    retention_trouble: str
    #: What this exporter is to the directory, and why: see `directory.maintenance`.
    role: str


class Section(NamedTuple):
    """A part of a page."""

    title: str = ""
    text: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()
    #: It tells of something that is wrong.
    trouble: bool = False


class Standing(NamedTuple):
    """What the sections are made of.

    :ivar diagnose: gives what stands at the directory.
    :ivar see: gives what was read; None before the first fold is done.
    """

    diagnose: Callable[[], Diagnosis]
    see: Callable[[], Seen] | None
    settings: Settings


#: Told the name of a section that is left out, and what it raised.
Failed = Callable[[str, Exception], None]


def page(standing: Standing, failed: Failed) -> bytes:
    """The page ``/status``."""
    shown_sections = sections(_SECTIONS, standing, failed)
    return site.page("status.html.jinja", sections=shown_sections, links=LINKS, version=VERSION)


def troubles(standing: Standing, failed: Failed) -> list[Section]:
    """What is to be said on the front page: what is wrong, and why there is nothing to show."""
    return sections(_TROUBLES, standing, failed)


def sections(
    makers: Mapping[str, Callable[[Standing], Iterable[Section]]],
    standing: Standing,
    failed: Failed,
) -> list[Section]:
    """Make sections; whichever raises costs itself alone."""
    made: list[Section] = []
    for name, make in makers.items():
        try:
            made += make(standing)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are shown
            failed(name, error)
            made.append(Section(text=(f"{name} could not be shown; see the exporter's log.",)))
    return made


def _directory(standing: Standing) -> Iterable[Section]:
    diagnosis, see = standing.diagnose(), standing.see
    state = "is being read for the first time" if see is None else diagnosis.what
    rows = (
        ("path", diagnosis.path),
        ("state", state),
        ("owner", diagnosis.owner or "-"),
        ("mode", diagnosis.mode or "-"),
        ("running as", user_text(os.geteuid())),
        ("role", "-" if see is None else see().role),
        ("looking for", PATTERN),
    )
    yield Section("The directory", rows=rows)


def _causes(standing: Standing) -> Iterable[Section]:
    if standing.see is None:
        yield Section(text=("Until that is done, /metrics answers 503.",))
        return
    diagnosis = standing.diagnose()
    if diagnosis.state == "segments":
        return
    kinds = kinds_in(diagnosis.path) if diagnosis.state in ("empty", "client_files") else ""
    yield Section(
        "There is nothing to show; the likeliest causes",
        (f"What is there instead: {kinds}",) if kinds else (),
        CAUSES[diagnosis.state],
        trouble=True,
    )


def _nothing(standing: Standing) -> Iterable[Section]:
    """The directory, where there is nothing in it, or nothing yet."""
    if standing.see is None or standing.diagnose().state != "segments":
        yield from _directory(standing)


def _snapshot(standing: Standing) -> Iterable[Section]:
    trouble = "" if standing.see is None else standing.see().snapshot_trouble
    if trouble:
        text = f"{SNAPSHOT_NAME} {trouble}. What it stands for is missing from the metrics."
        yield Section("The totals are too low", (text,), trouble=True)


def _compaction(standing: Standing) -> Iterable[Section]:
    if standing.see is None or not (seen := standing.see()).retention_trouble:
        return
    text = (
        f"{seen.retention_trouble}. When our files take {seen.limit_bytes} bytes, ranks drop "
        "events. A snapshot is written whole before segments are removed: the volume needs room "
        "for MX_METRICS_MAX_BYTES and as much again."
    )
    yield Section("The directory cannot be compacted", (text,), trouble=True)


def _missing(standing: Standing) -> Iterable[Section]:
    """Events that no metric counts, where there are any."""
    if standing.see is None:
        return
    seen = standing.see()
    what = [
        counted(count, one, many)
        for count, one, many in (
            (seen.lost, "event is lost", "events are lost"),
            (seen.refused, "observation was refused", "observations were refused"),
            (seen.rejected_lines, "line was rejected", "lines were rejected"),
        )
        if count
    ]
    if what:
        text = f"{', '.join(what)}. `mx-metrics check {standing.diagnose().path}` says which."
        yield Section("The log is not whole", (text,), trouble=True)


def _numbers(standing: Standing) -> Iterable[Section]:
    if standing.see is None:
        return
    seen = standing.see()
    yield Section(
        "Read so far",
        rows=(
            ("segments", f"{seen.segments}"),
            ("writers", f"{seen.writers_alive} alive, {seen.writers_gone} gone"),
            ("size of our files", f"{seen.our_bytes} bytes, of {seen.limit_bytes} at most"),
            ("last event", seen.last_event or "-"),
            ("bytes not yet read", f"{seen.unread_bytes}"),
            ("last drain", f"{seen.drain_seconds:.3f} s"),
        ),
    )
    yield Section(
        "The books: logged = folded + refused + skipped + rejected + lost",
        rows=(
            ("events logged", f"{seen.logged}"),
            ("folded", f"{seen.folded}"),
            ("refused", f"{seen.refused}"),
            ("skipped", f"{seen.skipped}"),
            ("rejected", f"{seen.rejected}"),
            ("lost", f"{seen.lost}"),
            ("lines rejected, with or without a number", f"{seen.rejected_lines}"),
            ("duplicates", f"{seen.duplicates}"),
        ),
    )


def books_line(seen: Seen) -> str:
    """The books on one line."""
    return (
        f"logged {seen.logged} = folded {seen.folded} + refused {seen.refused} + skipped "
        f"{seen.skipped} + rejected {seen.rejected} + lost {seen.lost}"
    )


def _versions(_: Standing) -> Iterable[Section]:
    yield Section(
        "Versions",
        rows=(
            ("mx-metrics", VERSION),
            ("format of the log", f"{FORMAT}"),
            ("Python", platform.python_version()),
        ),
    )


def _settings(standing: Standing) -> Iterable[Section]:
    rows = tuple(
        (OPTIONS[field.name].flag or OPTIONS[field.name].variable or field.name, text)
        for field in fields(Settings)
        if (text := _setting(getattr(standing.settings, field.name)))
    )
    yield Section("Settings in use", rows=rows)


def _setting(value: object) -> str:
    """A setting's value; without the password that an address may hold."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple) and hasattr(value, "path"):
        return str(value.path)
    text = str(value)
    if "://" in text and "@" in text:
        parts = urlsplit(text)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return text


#: The sections by their names, in their order. Those that need nothing of a diagnosis or of what
#: was read do not ask for it.
_SECTIONS: Mapping[str, Callable[[Standing], Iterable[Section]]] = {
    "the directory": _directory,
    "the causes": _causes,
    "the snapshot": _snapshot,
    "the compaction": _compaction,
    "what is missing": _missing,
    "the numbers": _numbers,
    "the versions": _versions,
    "the settings": _settings,
}

#: Those of the front page.
_TROUBLES: Mapping[str, Callable[[Standing], Iterable[Section]]] = {
    "the directory": _nothing,
    "the causes": _causes,
    "the snapshot": _snapshot,
    "the compaction": _compaction,
    "what is missing": _missing,
}
