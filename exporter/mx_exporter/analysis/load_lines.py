"""Loads as lines: of JSON, of CSV. Each with the key by which lines are put in order."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

import orjson

from ..loads.as_json import as_dict
from ..loads.model import Load
from ..offline.sorted_runs import time_key

#: Columns of CSV: keys of the JSON, seconds of these phases, and what came of the attempts.
_SCALARS = (
    "load_id", "proc", "pod", "namespace", "node", "rank", "engine", "model", "role", "scheme",
    "version", "began", "ended", "seconds", "outcome", "error_type", "error",
)  # fmt: skip
_PHASES = ("artifact_install", "model_init", "chain", "publish")
_COUNTED = ("attempts", "failed_attempts", "peer", "why")


def json_line(load: Load) -> tuple[bytes, bytes]:
    """A load as an object of JSON."""
    return _key(load), orjson.dumps(as_dict(load))


def csv_head() -> bytes:
    """The names of the columns."""
    return _csv([*_SCALARS, *_PHASES, *_COUNTED])


def csv_line(load: Load) -> tuple[bytes, bytes]:
    """A load as a row."""
    given = as_dict(load)
    well = [attempt for attempt in load.attempts if attempt.succeeded]
    counted = [
        len(load.attempts),
        sum(attempt.seconds is not None for attempt in load.attempts) - len(well),
        well[-1].peer if well else None,
        given["why"],
    ]
    phases = [given["phases"].get(name) for name in _PHASES]
    return _key(load), _csv([*(given[key] for key in _SCALARS), *phases, *counted])


def _key(load: Load) -> bytes:
    return time_key(load.began, load.process.proc, load.first_seq)


def _csv(values: Iterable[Any]) -> bytes:
    """One line, however many lines a value has."""
    flat = [" ".join(value.splitlines()) if type(value) is str else value for value in values]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(flat)
    return text.getvalue().encode("utf-8", "backslashreplace")
