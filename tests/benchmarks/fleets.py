"""A fleet: states of pods merged, and a local cluster of Dask beside the processes of one command.

As a program it takes a whole fleet through, and prints the time and the memory of each step:

    python -m tests.benchmarks.fleets --pods 10000 --loads 8 --place /tmp
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mx_demo.fleet import write_fleet
from mx_exporter.core import saved_state
from mx_exporter.core.builtin import CATALOG
from mx_exporter.offline.fold_logs import fold_logs
from tests.benchmarks import making
from tests.benchmarks.measuring import AT_LEAST, AT_MOST, Row, ratios
from tests.benchmarks.replaying import Run, rate, run_whole
from tests.support import free_port

_PODS, _FILES, _ROUNDS = 2_000, 200, 5
_BYTES = int(os.environ.get("BENCH_DASK_BYTES") or 1_000_000_000)
_START = 1_767_225_600
_SHARED = Path("/dev/shm")


def rows() -> Iterator[Row]:
    """The rows; they take six minutes."""
    with tempfile.TemporaryDirectory(dir=_SHARED if _SHARED.is_dir() else None) as place:
        yield _merging(Path(place) / "fleet")
        yield from _dask(Path(place) / "log")


def _merging(place: Path) -> Row:
    """The whole command; what it takes for one state is its start."""
    write_fleet(place / "fleet", _PODS, start=_START)
    size = 0
    for pod in sorted((place / "fleet").iterdir()):
        state = fold_logs(CATALOG, (str(pod),), jobs=1).outcome.state
        data = saved_state.dump(CATALOG, saved_state.SavedState(state))
        size += (place / f"{pod.name}.state").write_bytes(data)
    command = [sys.executable, "-m", "mx_exporter", "merge", "--jobs", "2"]
    one, every = f"{place}/engine-0.state", f"{place}/*.state"
    rates = []
    for _ in range(_ROUNDS):
        start = run_whole([*command, one]).seconds
        rates.append((_PODS - 1) / (run_whole([*command, every]).seconds - start))
    return Row(
        f"merge of states of pods, {size / _PODS / 1e3:.0f} kB each, two cores",
        "",
        rates,
        "states/s",
        AT_LEAST,
        2_000,
    )


def _dask(place: Path) -> Iterator[Row]:
    """A log in 200 files, and the same in 20, each read by two workers of one cluster."""
    wide, few = place / "wide", place / "few"
    for target, files in ((wide, _FILES), (few, _FILES // 10)):
        _make(target, files)
    size = sum(path.stat().st_size for path in wide.iterdir())
    with Cluster() as cluster:
        on_dask = _command(wide, "--engine", "dask", "--scheduler", cluster.address)
        ours, theirs = [run_whole(on_dask)], [run_whole(_command(wide, "--jobs", "2"))]
        if ours[0].output != theirs[0].output:
            raise RuntimeError("the pages differ")
        for _ in range(_ROUNDS - 2):
            ours.append(run_whole(on_dask))
            theirs.append(run_whole(_command(wide, "--jobs", "2")))
        mine, others = [run.seconds for run in ours], [run.seconds for run in theirs]
        yield Row(
            f"a cluster of Dask, two workers, {size / 1e9:.1f} GB in {_FILES} files: rate",
            "replay --jobs 2",
            ratios(others, mine),
            "x",
            AT_LEAST,
            0.8,
            rate(size, mine),
            rate(size, others),
        )
    peaks = []
    for log in (few, wide):
        with Cluster() as cluster:
            run_whole(_command(log, "--engine", "dask", "--scheduler", cluster.address))
            peaks.append(cluster.peak())
    yield Row(
        "the scheduler's peak memory, ten times as many files",
        "",
        [peaks[1] / peaks[0]],
        "x",
        AT_MOST,
        1.1,
        f"{peaks[1]:.0f} MB",
        f"{peaks[0]:.0f} MB",
    )


def _make(place: Path, files: int) -> None:
    """So many files, each of a process of its own; all together as many bytes."""
    place.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        making.make(Path(folder), max(making.SEGMENT_BYTES * making.RANKS, _BYTES // files))
        parts = sorted(Path(folder).iterdir())
        per_file = max(1, len(parts) * _BYTES // sum(p.stat().st_size for p in parts) // files)
        for number in range(files):
            data = b"".join(
                parts[(number * per_file + at) % len(parts)].read_bytes() for at in range(per_file)
            )
            proc, count = f"{number:012x}", iter(range(10**9))
            data = re.sub(
                rb'"proc":"[0-9a-f]{12}","seq":\d+',
                lambda _, proc=proc, count=count: (
                    b'"proc":"%s","seq":%d' % (proc.encode(), next(count))
                ),
                data,
            )
            (place / f"events-{proc}-0.jsonl").write_bytes(data)


def _command(log: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "mx_exporter", "replay", str(log), *options]


class Cluster:
    """A scheduler and two workers, as processes of their own."""

    def __enter__(self) -> Cluster:
        self.address = f"tcp://127.0.0.1:{free_port()}"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        start = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
        self._scheduler = subprocess.Popen([*start, "--host", self.address], **quiet)
        start = [sys.executable, "-m", "distributed.cli.dask_worker", self.address, "--no-nanny"]
        start += ["--nthreads", "1", "--no-dashboard"]
        self._workers = [subprocess.Popen(start, **quiet) for _ in range(2)]
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._workers, self._scheduler):
            process.kill()
            process.wait()

    def peak(self) -> float:
        """Most memory that the scheduler had, in MB."""
        text = Path(f"/proc/{self._scheduler.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", text)
        assert found
        return int(found[1]) / 1024


def main() -> None:
    """Take a fleet through all steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--loads", type=int, default=8, help="loads a rank")
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.place) as folder:
        _whole_fleet(Path(folder), given.pods, given.loads)


def _whole_fleet(place: Path, pods: int, loads: int) -> None:
    logs = place / "logs"
    parts = [logs / f"part-{at}" for at in range(loads)]
    size = files = 0
    for at, part in enumerate(parts):
        written = write_fleet(part, pods, start=_START + at * 86_400 * 30, seed=at)
        size += written.size
        files += written.ranks
    print(f"{pods} pods, {files} files, {size / 1e9:.2f} GB", flush=True)
    everything = f"{logs}/part-*/*"
    _say("replay --jobs 2", run_whole(_quoted(everything, "--jobs", "2")))
    with Cluster() as cluster:
        options = ("--engine", "dask", "--scheduler", cluster.address)
        _say("replay --engine dask, two workers", run_whole(_quoted(everything, *options)))
        print(f"its scheduler: {cluster.peak():.0f} MB", flush=True)
    states = place / "states"
    states.mkdir()
    groups = [sorted(part.iterdir())[at::10] for part in parts for at in range(10)]
    folds = [
        run_whole(
            [
                *_command(group[0], "--jobs", "1", *map(str, group[1:])),
                *("--save-state", str(states / f"{at}.state")),
            ]
        )
        for at, group in enumerate(groups)
    ]
    took, memory = sum(run.seconds for run in folds), max(run.memory for run in folds)
    print(f"{len(folds)} states: {took:.0f} s of one core, {memory:.0f} MB each", flush=True)
    merge = [sys.executable, "-m", "mx_exporter", "merge", f"{states}/*.state"]
    _say("merge of them", run_whole(merge))


def _quoted(pattern: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "mx_exporter", "replay", pattern, *options]


def _say(what: str, run: Run) -> None:
    print(f"{what}: {run.seconds:.0f} s, {run.memory:.0f} MB at most in a process", flush=True)


if __name__ == "__main__":
    main()
