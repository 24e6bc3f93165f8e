"""The page for people, at ``/``: what the exporter is, what it sees, and what is wrong.

Plain HTML that reads well in a browser and from curl: no script, no style sheet, nothing
fetched from elsewhere. Everything that comes from outside is escaped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import NamedTuple

from mx_log.files import BAD_SNAPSHOT_NAME, SNAPSHOT_NAME
from mx_log.schema import VERSION

from ..directory.diagnosis import CAUSES, PATTERN, Diagnosis, kinds_in, user_text

LINKS = (
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


#: Gives what stands at the directory.
Diagnose = Callable[[], Diagnosis]

#: Gives what was read.
See = Callable[[], Seen]


def render(diagnose: Diagnose, see: See | None, failed: Callable[[str, Exception], None]) -> bytes:
    """The page.

    :param see: None before the first fold is done.
    :param failed: told the name of a section that is left out, and what it raised.
    """
    page = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><title>mx-metrics</title></head>',
        "<body>",
        "<h1>mx-metrics</h1>",
        "<p>Reads the event logs of ModelExpress ranks and serves the metrics derived from "
        "them.</p>",
        "<ul>",
        *(f'<li><a href="{path}">{path}</a> {text}</li>' for path, text in LINKS),
        "</ul>",
    ]
    for name, section in _SECTIONS.items():
        try:
            page += list(section(diagnose, see))
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are shown
            failed(name, error)
            page.append(f"<p>{name} could not be shown; see the exporter's log.</p>")
    page += ["</body>", "</html>", ""]
    # A path may hold bytes that are no UTF-8.
    return "\n".join(page).encode("utf-8", "replace")


def _directory(diagnose: Diagnose, see: See | None) -> Iterable[str]:
    diagnosis = diagnose()
    state = "is being read for the first time" if see is None else diagnosis.what
    return _table(
        "The directory",
        [
            ("version", VERSION),
            ("path", diagnosis.path),
            ("state", state),
            ("owner", diagnosis.owner or "-"),
            ("mode", diagnosis.mode or "-"),
            ("running as", user_text(os.geteuid())),
            ("role", "-" if see is None else see().role),
            ("looking for", PATTERN),
        ],
    )


def _causes(diagnose: Diagnose, see: See | None) -> Iterable[str]:
    if see is None:
        yield "<p>Until that is done, /metrics answers 503.</p>"
        return
    diagnosis = diagnose()
    if diagnosis.state == "segments":
        return
    yield "<h2>There is nothing to show; the likeliest causes</h2>"
    yield "<ol>"
    for cause in CAUSES[diagnosis.state]:
        yield f"<li>{escape(cause)}</li>"
    yield "</ol>"
    kinds = kinds_in(diagnosis.path) if diagnosis.state in ("empty", "client_files") else ""
    if kinds:
        yield f"<p>What is there instead: {escape(kinds)}</p>"


def _snapshot(_: Diagnose, see: See | None) -> Iterable[str]:
    trouble = "" if see is None else see().snapshot_trouble
    if not trouble:
        return
    yield "<h2>The totals are too low</h2>"
    yield (
        f"<p>{SNAPSHOT_NAME} {escape(trouble)}. What it stands for is missing from the metrics. "
        "Put a good one in its place, or move it away; the next compaction moves it to "
        f"{BAD_SNAPSHOT_NAME}.</p>"
    )


def _stuck(_: Diagnose, see: See | None) -> Iterable[str]:
    if see is None:
        return
    seen = see()
    if not seen.retention_trouble:
        return
    yield "<h2>The directory cannot be compacted</h2>"
    yield (
        f"<p>{escape(seen.retention_trouble)}. When our files take {seen.limit_bytes} bytes, ranks "
        "drop events. A snapshot is written whole before segments are removed: the volume needs "
        "room for MX_METRICS_MAX_BYTES and as much again.</p>"
    )


def _numbers(_: Diagnose, see: See | None) -> Iterable[str]:
    if see is None:
        return
    seen = see()
    yield from _table(
        "Read so far",
        [
            ("segments", f"{seen.segments}"),
            ("writers", f"{seen.writers_alive} alive, {seen.writers_gone} gone"),
            ("size of our files", f"{seen.our_bytes} bytes, of {seen.limit_bytes} at most"),
            ("last event", seen.last_event or "-"),
            ("bytes not yet read", f"{seen.unread_bytes}"),
            ("last drain", f"{seen.drain_seconds:.3f} s"),
        ],
    )
    yield from _table(
        "The books: logged = folded + refused + skipped + rejected + lost",
        [
            ("events logged", f"{seen.logged}"),
            ("folded", f"{seen.folded}"),
            ("refused", f"{seen.refused}"),
            ("skipped", f"{seen.skipped}"),
            ("rejected", f"{seen.rejected}"),
            ("lost", f"{seen.lost}"),
            ("lines rejected, with or without a number", f"{seen.rejected_lines}"),
            ("duplicates", f"{seen.duplicates}"),
        ],
    )


def _table(title: str, rows: Iterable[tuple[str, str]]) -> Iterable[str]:
    yield f"<h2>{escape(title)}</h2>"
    yield "<table>"
    for name, value in rows:
        yield f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
    yield "</table>"


#: The sections by their names, in their order. Those that need nothing of a diagnosis or of what
#: was read do not ask for it.
_SECTIONS: Mapping[str, Callable[[Diagnose, See | None], Iterable[str]]] = {
    "the directory": _directory,
    "the causes": _causes,
    "the snapshot": _snapshot,
    "the compaction": _stuck,
    "the numbers": _numbers,
}
