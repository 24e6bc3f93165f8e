"""Reading what the emitter wrote, strictly, and running programs that emit."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from mx_log.files import parse_segment_name
from mx_log.schema import RESERVED_KEYS, TIMESTAMP
from tests import support

HEADERS = ("process_started", "segment_continued")


class Log:
    """The segments of a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._sizes: list[tuple[Path, int]] = []
        self._lines: list[dict[str, Any]] = []

    def segments(self) -> list[Path]:
        """By process, then by number."""
        named = {parse_segment_name(path.name): path for path in self.directory.glob("events-*")}
        assert None not in named
        return [named[name] for name in sorted(named)]

    def lines(self) -> list[dict[str, Any]]:
        """Every line, headers included. Each must be whole, and good JSON.

        They are parsed again only when there is more, since a test may ask often, of many.
        """
        sizes = [(path, path.stat().st_size) for path in self.segments()]
        if sizes != self._sizes:
            self._lines = []
            for path, _ in sizes:
                text = path.read_bytes()
                assert text.endswith(b"\n"), f"{path} ends in the middle of a line"
                self._lines += [_parse(line) for line in text.split(b"\n") if line]
            self._sizes = sizes
        return list(self._lines)

    def events(self, *names: str) -> list[dict[str, Any]]:
        """The events but the headers; only those with one of ``names``, if there are any."""
        return [
            line
            for line in self.lines()
            if (line["event"] in names if names else line["event"] not in HEADERS)
        ]

    def own_fields(self, *names: str) -> list[dict[str, Any]]:
        """The fields that events have of their own, and their names as ``event``."""
        hidden = RESERVED_KEYS - {"event"}
        return [
            {key: value for key, value in event.items() if key not in hidden}
            for event in self.events(*names)
        ]

    def names(self) -> list[str]:
        return [event["event"] for event in self.events()]

    def dropped(self) -> Counter[str]:
        """How many events were reported as dropped, by reason."""
        found: Counter[str] = Counter()
        for event in self.events("events_dropped"):
            found[event["reason"]] += event["count"]
        return found

    def check_books(self) -> None:
        """Each process used each number from 0 on exactly once."""
        numbers: dict[str, list[int]] = {}
        for line in self.lines():
            numbers.setdefault(line["proc"], []).append(line["seq"])
        for proc, used in numbers.items():
            assert sorted(used) == list(range(len(used))), proc


def _parse(line: bytes) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON: {line!r}")

    record = json.loads(line, parse_constant=refuse)
    assert isinstance(record, dict)
    assert TIMESTAMP.fullmatch(record["timestamp"])
    assert record["level"] in ("debug", "info", "warning", "error", "critical")
    assert set(record) >= RESERVED_KEYS - {"load_id"}
    return record


class Program:
    """Programs that emit into a directory of their own."""

    def __init__(self, spawn: support.Spawner, directory: Path) -> None:
        self._spawn = spawn
        self.directory = directory
        self.log = Log(directory)

    def start(self, code: str, *arguments: str, **env: str) -> support.Process:
        given = {"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(self.directory), **env}
        return self._spawn.python("-c", code, *arguments, env=given)

    def run(self, code: str, *arguments: str, **env: str) -> support.Process:
        """Run to the end, which must be a good one."""
        process = self.start(code, *arguments, **env)
        assert process.result() == 0, process.error_output
        return process
