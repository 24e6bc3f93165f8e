"""Following a directory, against a model of what was logged.

Rules write, tear, rotate, kill, drain, compact, crash and restart in any order. The model is
lists and dicts: it knows no position in a file, no lock and no snapshot. After each whole drain
the page says what the model says.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory import reading, retention, segments
from mx_exporter.directory.compaction import Compactor
from mx_exporter.directory.follower import Follower
from mx_log.files import parse_segment_name
from tests.support.folding import classic_page
from tests.support.pages import parse
from tests.support.writers import Writer

SETTINGS = settings(
    max_examples=settings().max_examples * 3 // 2,
    stateful_step_count=50,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)

#: Writers that live at a time, and processes in all.
ALIVE, ALL = 3, 7

Sample = tuple[str, frozenset[tuple[str, str]]]
Page = dict[Sample, float]

#: Samples that are compared, and which label of them names the process, if one does.
COMPARED = {
    "mx_p2p_source_attempts_total": "policy",
    "mx_p2p_transfer_seconds_count": "policy",
    "mx_p2p_transfer_seconds_sum": "policy",
    "mx_loads_in_progress": "model",
    "mx_loads_abandoned_total": "model",
    "mx_exporter_events_folded_total": None,
    "mx_exporter_lines_rejected_total": None,
    "mx_exporter_observations_refused_total": None,
    "mx_exporter_events_skipped_total": None,
    "mx_exporter_duplicates_total": None,
    "mx_exporter_events_logged_total": None,
    "mx_exporter_events_lost": None,
}

#: What is no counter may fall.
GAUGES = {"mx_loads_in_progress", "mx_exporter_events_lost", "mx_p2p_transfer_seconds_sum"}


def sample(name: str, **labels: str) -> Sample:
    return name, tuple(sorted(labels.items()))


@dataclass
class Entry:
    """An event whose whole line is in a file."""

    seq: int
    event: str
    fields: dict[str, object]
    line: bytes


@dataclass
class Process:
    """What the model knows of one process."""

    proc: str
    entries: list[Entry] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    alive: bool = True

    @property
    def logged(self) -> int:
        return max(entry.seq for entry in self.entries) + 1

    @property
    def lost(self) -> int:
        return self.logged - len(self.entries)

    def loads(self) -> dict[str, list[str]]:
        """The loads that run, and the phases of each that run."""
        running: dict[str, list[str]] = {}
        for entry in self.entries:
            load, phase = str(entry.fields.get("load_id")), str(entry.fields.get("phase"))
            if entry.event == "load_started":
                running[load] = []
            elif entry.event == "load_finished":
                running.pop(load, None)
            elif entry.event.startswith("load_phase") and load in running:
                phases = running[load]
                if phase in phases:
                    phases.remove(phase)
                if entry.event == "load_phase_started":
                    phases.append(phase)
        return running

    def page(self) -> Page:
        """The samples that this process brings about."""
        page: Counter[Sample] = Counter()
        seconds = Fraction(0)
        for entry in self.entries:
            if entry.event == "of_the_future":
                page[sample("mx_exporter_events_skipped_total")] += 1
                continue
            if entry.event == "transfer_finished":
                value = entry.fields["seconds"]
                if not isinstance(value, float):
                    reason = "missing" if value is None else "not_finite"
                    page[sample("mx_exporter_observations_refused_total", reason=reason)] += 1
                    continue
                seconds += Fraction(value)
                labels = {"policy": self.proc, "scheme": "", "outcome": "success"}
                page[sample("mx_p2p_transfer_seconds_count", **labels)] += 1
                page[sample("mx_p2p_transfer_seconds_sum", **labels)] = float(seconds)
            if entry.event == "source_attempted":
                labels = {"policy": self.proc, "scheme": "", "result": str(entry.fields["result"])}
                page[sample("mx_p2p_source_attempts_total", **labels)] += 1
            page[sample("mx_exporter_events_folded_total", event=entry.event)] += 1
        fate = "mx_loads_in_progress" if self.alive else "mx_loads_abandoned_total"
        for phases in self.loads().values():
            phase = phases[-1] if phases else ""
            page[sample(fate, engine="vllm", model=self.proc, phase=phase, scheme="")] += 1
        for reason, count in self.rejected.items():
            page[sample("mx_exporter_lines_rejected_total", reason=reason)] += count
        page[sample("mx_exporter_duplicates_total")] += self.repeated
        page[sample("mx_exporter_events_logged_total")] += self.logged
        page[sample("mx_exporter_events_lost")] += self.lost
        return page


@dataclass
class Half:
    """A line of which the first ``given`` bytes are in the file."""

    entry: Entry
    given: int

    @property
    def rest(self) -> bytes:
        return self.entry.line[self.given :]

    @property
    def lacks_its_newline_only(self) -> bool:
        return self.rest == b"\n"


class Crash(BaseException):
    """The exporter ends here."""


def shown(follower: Follower) -> Page:
    """What a scrape shows, zeros left out."""
    found = parse(classic_page(follower.fold.state).decode())
    return {key: value for key, value in found.items() if key[0] in COMPARED and value}


class Exporter:
    """One life of an exporter, and the pages that it showed last."""

    def __init__(self, directory: Path) -> None:
        self._ticks = itertools.count()
        self.follower = Follower(str(directory), Fold(CATALOG), clock=lambda: next(self._ticks))
        self.page: Page = {}
        self.last: Page = {}

    def drain(self, ticks: int | None = None) -> None:
        """Drain, up to so many looks at the clock."""
        deadline = None if ticks is None else next(self._ticks) + ticks
        self.follower.drain(deadline)
        self.last, self.page = self.page, shown(self.follower)


which = st.integers(0, ALIVE - 1)
kinds = st.sampled_from(["attempt", "transfer", "future", "start", "phase", "phase_end", "end"])
amounts = st.sampled_from([0.1, 0.2, 0.3, 1e16, -0.1, 1e-9, 5e-324, 7.0, None, "nan"])


class AppendOnly(RuleBasedStateMachine):
    """Files only grow, as the emitter's do: the page is exact."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        directory.mkdir()
        self.directory = directory
        self.processes: dict[str, Process] = {}
        self.writers: dict[str, Writer] = {}
        self.halves: dict[str, Half] = {}
        self.exporter = Exporter(directory)
        #: Reads beside the owner, and never compacts.
        self.reader = Exporter(directory)
        self.compactors: dict[tuple[int, int], Compactor] = {}
        self.start()

    def teardown(self) -> None:
        for writer in self.writers.values():
            writer.close()

    # ---------------------------------------------------------------- writers

    @precondition(lambda self: len(self.writers) < ALIVE and len(self.processes) < ALL)
    @rule()
    def start(self) -> None:
        proc = f"{len(self.processes):012x}"
        self.processes[proc] = Process(proc)
        self.writers[proc] = Writer(self.directory, proc)
        self.processes[proc].entries.append(Entry(0, "process_started", {}, b""))

    def pick(self, number: int) -> tuple[Writer, Process]:
        proc = sorted(self.writers)[number % len(self.writers)]
        return self.writers[proc], self.processes[proc]

    def make(self, writer: Writer, process: Process, kind: str, amount: object) -> Entry:
        """The next event of a process; what the process cannot log now becomes an attempt."""
        seq = writer.lines.seq
        loads = process.loads()
        load = {"engine": "vllm", "model": process.proc}
        event, fields = "source_attempted", {"policy": process.proc, "result": f"n{seq}"}
        if kind == "transfer":
            event = "transfer_finished"
            fields = {"policy": process.proc, "outcome": "success", "seconds": amount}
        elif kind == "future":
            event, fields = "of_the_future", {"thing": [seq]}
        elif kind == "start":
            event, fields = "load_started", {**load, "model_role": "main", "load_id": f"l{seq}"}
        elif loads:
            load["load_id"] = list(loads)[-1]
            phase = ["model_init", "chain", "publish"][seq % 3]
            phases = loads[load["load_id"]]
            if kind == "phase":
                event, fields = "load_phase_started", {**load, "phase": phase}
            elif kind == "phase_end" and phases:
                event = "load_phase_finished"
                fields = {**load, "phase": phases[0], "seconds": 1.0}
            elif kind == "end":
                event = "load_finished"
                fields = {**load, "model_role": "main", "outcome": "success", "seconds": 1.0}
        return Entry(seq, event, fields, writer.lines(event, **fields))

    @precondition(lambda self: self.writers)
    @rule(number=which, kind=kinds, amount=amounts, count=st.integers(1, 4))
    def log(self, number: int, kind: str, amount: object, count: int) -> None:
        writer, process = self.pick(number)
        self.end_half(process.proc)
        for _ in range(count):
            entry = self.make(writer, process, kind, amount)
            writer.write(entry.line)
            process.entries.append(entry)

    @precondition(lambda self: self.writers)
    @rule(number=which, around=st.sampled_from([(b"\0" * 600, b""), (b"\xef\xbb\xbf", b"\r")]))
    def log_in_wrapping(self, number: int, around: tuple[bytes, bytes]) -> None:
        """Zero bytes of a crash, a byte order mark, a carriage return."""
        writer, process = self.pick(number)
        self.end_half(process.proc)
        entry = self.make(writer, process, "attempt", None)
        writer.write(around[0] + entry.line[:-1] + around[1] + b"\n")
        process.entries.append(entry)

    @precondition(lambda self: self.writers)
    @rule(number=which, kind=kinds, amount=amounts, cut=st.integers(0, 400))
    def log_half(self, number: int, kind: str, amount: object, cut: int) -> None:
        writer, process = self.pick(number)
        self.end_half(process.proc)
        entry = self.make(writer, process, kind, amount)
        half = Half(entry, 1 + cut % (len(entry.line) - 1))
        writer.write(entry.line[: half.given])
        self.halves[process.proc] = half

    def end_half(self, proc: str) -> None:
        """The other half, as part of what the process does next."""
        half = self.halves.pop(proc, None)
        if half:
            self.writers[proc].write(half.rest)
            self.processes[proc].entries.append(half.entry)

    @precondition(lambda self: self.halves)
    @rule(number=which)
    def log_other_half(self, number: int) -> None:
        self.end_half(sorted(self.halves)[number % len(self.halves)])

    @precondition(lambda self: self.halves)
    @rule(number=which)
    def give_up_half(self, number: int) -> None:
        """After a short write: the torn line is ended, its number goes to the next event."""
        proc = sorted(self.halves)[number % len(self.halves)]
        half = self.halves.pop(proc)
        self.writers[proc].write(b"\n")
        if half.lacks_its_newline_only:
            self.processes[proc].entries.append(half.entry)
        else:
            self.processes[proc].rejected["not_json"] += 1
            self.writers[proc].lines.seq = half.entry.seq

    @precondition(lambda self: self.writers)
    @rule(
        number=which,
        junk=st.sampled_from(
            [
                (b"junk\n", "not_json"),
                (b"\0\0\0{\n", "not_json"),
                (b"[1]\n", "not_object"),
                (b'{"event":3}\n', "wrong_type"),
                (b"\n\r\n\0\n", ""),
            ]
        ),
    )
    def write_junk(self, number: int, junk: tuple[bytes, str]) -> None:
        writer, process = self.pick(number)
        self.end_half(process.proc)
        writer.write(junk[0])
        if junk[1]:
            process.rejected[junk[1]] += 1

    @precondition(lambda self: self.writers)
    @rule(number=which, back=st.integers(0, 5))
    def log_again(self, number: int, back: int) -> None:
        writer, process = self.pick(number)
        self.end_half(process.proc)
        entry = process.entries[-1 - back % len(process.entries)]
        if entry.line:
            writer.write(entry.line)
            process.repeated += 1

    @precondition(lambda self: self.writers)
    @rule(number=which)
    def lose(self, number: int) -> None:
        """A number that no line will ever carry."""
        self.pick(number)[0].lines.seq += 1

    def tear(self, proc: str) -> None:
        """A file ends in the middle of a line."""
        half = self.halves.pop(proc, None)
        if half is None:
            return
        if half.lacks_its_newline_only:
            self.processes[proc].entries.append(half.entry)
        else:
            self.processes[proc].rejected["torn"] += 1

    @precondition(lambda self: self.writers)
    @rule(number=which)
    def rotate(self, number: int) -> None:
        writer, process = self.pick(number)
        self.tear(process.proc)
        seq = writer.lines.seq
        writer.rotate()
        process.entries.append(Entry(seq, "segment_continued", {}, b""))

    @precondition(lambda self: self.writers)
    @rule(number=which)
    def die(self, number: int) -> None:
        writer, process = self.pick(number)
        self.tear(process.proc)
        writer.close()
        process.alive = False
        del self.writers[process.proc]

    # ---------------------------------------------------------------- exporters

    def wanted(self) -> Counter[Sample]:
        page: Counter[Sample] = Counter()
        for process in self.processes.values():
            page.update(process.page())
        return page

    def check(self, exporter: Exporter) -> None:
        """The page of a whole drain is what was logged."""
        assert exporter.follower.bytes_unread == 0
        wanted = self.wanted()
        assert exporter.page == {key: value for key, value in wanted.items() if value}
        books = exporter.follower.fold.state.books
        for proc, process in self.processes.items():
            met = [entry.seq for entry in process.entries]
            assert [seq for seq in range(process.logged) if books[proc].knows(seq)] == sorted(met)
        gone = sum(not process.alive for process in self.processes.values())
        assert exporter.follower.fold.state.gone == gone
        assert exporter.follower.writers_alive == len(self.writers)

    def check_part(self, exporter: Exporter) -> None:
        """A page of a drain that was cut short shows no less than the last, and no more than
        was logged."""
        if exporter.follower.bytes_unread == 0:
            self.check(exporter)
        wanted = self.wanted()
        for key in {*exporter.page, *exporter.last}:
            if key[0] not in GAUGES:
                value = exporter.page.get(key, 0)
                assert exporter.last.get(key, 0) <= value <= wanted[key], key

    @rule()
    def drain(self) -> None:
        self.exporter.drain()
        self.check(self.exporter)

    @rule(ticks=st.integers(0, 12))
    def drain_in_part(self, ticks: int) -> None:
        self.exporter.drain(ticks)
        self.check_part(self.exporter)

    @precondition(lambda self: self.writers)
    @rule(
        number=which,
        look=st.integers(0, 4),
        rotations=st.integers(0, 2),
        compact=st.booleans(),
    )
    def drain_while_a_writer_goes_on(
        self, number: int, look: int, rotations: int, compact: bool
    ) -> None:
        """Between two looks at files a writer logs and rotates; then segments are compacted.

        A segment that ended makes the drain list a second time.
        """
        looks = itertools.count()
        self.rotate(number + 1)

        def probe_and_go_on(fd: int, probe: Callable[[int], bool] = reading.probe) -> bool:
            gone = probe(fd)
            if next(looks) == look:
                self.log(number, "attempt", None, 1)
                for _ in range(rotations):
                    self.rotate(number)
                    self.log(number, "start", None, 1)
            return gone

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "probe", probe_and_go_on)
            self.exporter.drain()
        if compact:
            self.compact(retain=1, segments=1)
        self.drain()

    @rule()
    def drain_beside(self) -> None:
        self.reader.drain()
        self.check(self.reader)

    @rule(ticks=st.integers(0, 12))
    def drain_beside_in_part(self, ticks: int) -> None:
        self.reader.drain(ticks)
        self.check_part(self.reader)

    @rule()
    def restart(self) -> None:
        """Nothing that an exporter knows outlives it but what is in the directory."""
        self.exporter = Exporter(self.directory)
        self.drain()

    def compactor_of(self, retain: int, segments: int) -> Compactor:
        return Compactor(
            retain,
            10**9,
            min_age=0.0,
            max_segments=segments,
            clock=lambda: time.time() + 3600,
        )

    @rule(retain=st.sampled_from([1, 1500]), segments=st.sampled_from([1, 3]))
    def compact(self, retain: int, segments: int) -> None:
        compactor = self.compactor_of(retain, segments)
        compactor.compact(self.exporter.follower)
        assert not compactor.trouble
        self.drain()

    @rule(
        retain=st.sampled_from([1, 1500]),
        step=st.integers(0, 9),
        again=st.booleans(),
    )
    def compact_and_crash(self, retain: int, step: int, again: bool) -> None:
        """The exporter ends before that step of a compaction, and starts again."""
        if again:
            self.exporter.drain()
        with pytest.MonkeyPatch.context() as patch:
            ahead = itertools.count()
            for name in ("fchmod", "fsync", "rename", "unlink"):
                patch.setattr(os, name, crashing(getattr(os, name), ahead, step))
            try:
                self.compactor_of(retain, 1).compact(self.exporter.follower)
                crashed = False
            except Crash:
                crashed = True
        if crashed:
            self.restart()
        else:
            self.drain()


def crashing(real: Callable[..., object], ahead: Iterator[int], step: int) -> Callable[..., object]:
    def call(*arguments: object, **options: object) -> object:
        if next(ahead) >= step:
            raise Crash
        return real(*arguments, **options)

    return call


class Tampered(AppendOnly):
    """Somebody truncates, replaces and overwrites files: their processes are read as well as can
    be, the others exactly."""

    def __init__(self, directory: Path) -> None:
        self.touched: set[str] = set()
        self.read: dict[str, bytes] = {}
        self.reported = 0
        super().__init__(directory)

    def file(self, number: int) -> Path | None:
        files = [path for path in sorted(self.directory.iterdir()) if parse_segment_name(path.name)]
        if not files:
            return None
        path = files[number % len(files)]
        self.touched.add(str(parse_segment_name(path.name)[0]))
        return path

    @rule(number=st.integers(0, 9), to=st.integers(0, 3000), border=st.booleans())
    def truncate(self, number: int, to: int, border: bool) -> None:
        path = self.file(number)
        if path:
            size = path.stat().st_size
            to = to % size if size else 0
            os.truncate(path, path.read_bytes().rfind(b"\n", 0, to) + 1 if border else to)

    @rule(number=st.integers(0, 9), content=st.sampled_from(["same", "cut", "other"]))
    def replace(self, number: int, content: str) -> None:
        """Another file under the name: another inode, whose writer nobody knows."""
        path = self.file(number)
        if path:
            made = self.directory / "copy"
            made.write_bytes(self.content(path, content))
            made.rename(path)

    @rule(number=st.integers(0, 9), content=st.sampled_from(["cut", "other"]))
    def overwrite(self, number: int, content: str) -> None:
        """The same inode, with new content."""
        path = self.file(number)
        if path:
            path.write_bytes(self.content(path, content))

    def content(self, path: Path, kind: str) -> bytes:
        lines = path.read_bytes().splitlines(keepends=True)
        if kind == "cut":
            return b"".join(lines[1:])
        if kind == "other":
            return b"".join(reversed(lines))
        return b"".join(lines)

    def check(self, exporter: Exporter) -> None:
        assert exporter.follower.bytes_unread == 0
        books = exporter.follower.fold.state.books
        for proc in self.processes.keys() - self.touched:
            process = self.processes[proc]
            assert (books[proc].end, books[proc].lost) == (process.logged, process.lost)
        wanted = self.wanted()
        for key in {*exporter.page, *wanted}:
            label = COMPARED[key[0]]
            if label and dict(key[1])[label] not in self.touched:
                assert exporter.page.get(key, 0) == wanted[key], key
        self.check_once(exporter)
        if exporter is self.exporter:
            self.check_reports()

    def check_part(self, exporter: Exporter) -> None:
        self.check_once(exporter)
        if exporter is self.exporter:
            self.read = {}

    def check_once(self, exporter: Exporter) -> None:
        """No event twice: each attempt has a series of its own."""
        for key, value in exporter.page.items():
            assert key[0] != "mx_p2p_source_attempts_total" or value == 1, key

    def check_reports(self) -> None:
        """A file that was read, and no longer begins with what was read of it, was reported."""
        follower = self.exporter.follower
        now = {str(s.name): (self.directory / str(s.name)).read_bytes() for s in follower.segments}
        changed = [
            name for name, read in self.read.items() if not now.get(name, read).startswith(read)
        ]
        if changed:
            assert follower.rewritten > self.reported, changed
        self.reported = follower.rewritten
        self.read = {str(s.name): now[str(s.name)] for s in follower.segments if not s.done}

    def restart(self) -> None:
        self.read, self.reported = {}, 0
        super().restart()


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that end within lines, and compactions of few segments."""
    monkeypatch.setattr(segments, "BLOCK_BYTES", 400)
    monkeypatch.setattr(retention, "STEP_BYTES", 3000)


@pytest.mark.long
@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("machine", [AppendOnly, Tampered])
def test_the_page_is_what_was_logged(machine: type[AppendOnly], tmp_path: Path) -> None:
    numbers = itertools.count()
    run_state_machine_as_test(lambda: machine(tmp_path / str(next(numbers))), settings=SETTINGS)
