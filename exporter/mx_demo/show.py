"""Eight simulated ranks and an exporter, in a directory of their own: ``mx-metrics demo``."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from mx_exporter.errors import MxError

#: Each rank's first load. The first pod of a deployment finds no peer.
FIRST_LOADS = ["alone", "peer", "artifacts", "retry", "miss", "fallback", "hang", "killed"]

Samples = list[tuple[str, dict[str, str], float]]


#: Half of the ranks are of each pod.
PODS = (("demo-0", "node-a", "0.7.0"), ("demo-1", "node-b", "0.7.1"))


class DemoFailed(MxError):
    """Something that the demo shows did not happen; the message says what."""


def until(condition: Callable[[], Any], what: str, limit: float = 60.0) -> Any:
    """Wait until ``condition`` gives something true; give that."""
    deadline = time.monotonic() + limit
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise DemoFailed(f"{what}: not within {limit:g} s")
        time.sleep(0.05)
    return value


def choose_port(wanted: int | None, once: bool) -> int:
    """The wanted port, else 9402 while it is free, else any."""
    if wanted is not None:
        return wanted
    for port in (0,) if once else (9402, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise DemoFailed("no port is free")


class Demo:
    """The processes and the page.

    :param keep: a folder for the log, which stays; None: one that goes.
    :param speed: how many times as short as real loads the ranks' are.
    """

    def __init__(self, *, once: bool, port: int | None, speed: float, keep: Path | None) -> None:
        self.speed = speed
        self.home = Path(tempfile.mkdtemp(prefix="mx-demo-"))
        self.log = keep or self.home / "log"
        self.exporter: subprocess.Popen[bytes] | None = None
        self.ranks: dict[int, subprocess.Popen[bytes]] = {}
        self.seed = 0
        self.url = f"http://127.0.0.1:{choose_port(port, once)}"

    # -- processes ---------------------------------------------------------------------

    def environment(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("MX_", "POD_", "NODE_"))}
        return {**kept, "MX_METRICS_DIR": str(self.log), **more}

    def start_exporter(self) -> None:
        with open(self.home / "exporter.log", "wb") as messages:
            self.exporter = subprocess.Popen(
                [sys.executable, "-m", "mx_exporter", "serve", "--listen", self.url[7:]],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=messages,
                start_new_session=True,
            )
        until(self.ready, "the exporter gets ready")

    def ready(self) -> bool:
        assert self.exporter
        if self.exporter.poll() is not None:
            said = (self.home / "exporter.log").read_text(errors="replace").strip()
            raise DemoFailed(f"the exporter ended: {said}")
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def start_rank(self, number: int, *scenarios: str, forever: bool = False) -> None:
        engine = ("vllm", "sglang")[number % 2]
        pod, node, release = PODS[number * len(PODS) // len(FIRST_LOADS)]
        self.seed += 1
        command = [sys.executable, "-m", "mx_demo.rank", *scenarios]
        command += ["--engine", engine, "--release", release]
        command += ["--seed", str(self.seed), "--speed", str(self.speed)]
        self.ranks[number] = subprocess.Popen(
            command + ["--forever"] * forever,
            env=self.environment(
                MX_METRICS_ENABLED="1",
                MX_METRICS_SCHEME="demo",
                RANK=str(number),
                POD_NAME=pod,
                POD_NAMESPACE="demo",
                NODE_NAME=node,
                TMPDIR=str(self.home),  # what a rank that is killed leaves there goes with it
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def wait_receiving(self, number: int) -> None:
        """Wait until a rank says that it is in the middle of its transfer."""
        stdout = self.ranks[number].stdout
        assert stdout
        if stdout.readline() != b"receiving\n":
            raise DemoFailed(f"rank {number} ended before its transfer")

    def wait_killed(self, number: int) -> None:
        """Wait until a rank has killed itself."""
        if self.ranks[number].wait(30) != -signal.SIGKILL:
            raise DemoFailed(f"rank {number} was not killed")
        self.end_rank(number, signal.SIGKILL)

    def end_rank(self, number: int, how: signal.Signals) -> int:
        rank = self.ranks.pop(number)
        if rank.poll() is None:
            rank.send_signal(how)
        status = rank.wait(30)
        assert rank.stdout
        rank.stdout.close()
        return status

    def end(self) -> None:
        """End all cleanly, and remove the log, unless it is to be kept."""
        for number in list(self.ranks):
            self.end_rank(number, signal.SIGKILL)
        if self.exporter:
            self.exporter.terminate()
            try:
                self.exporter.wait(10)
            except subprocess.TimeoutExpired:
                self.exporter.kill()
                self.exporter.wait()
        shutil.rmtree(self.home)

    @property
    def pace(self) -> str:
        return f"Loads take a {self.speed:g}th of what real ones take, and their log says so."

    # -- the page ----------------------------------------------------------------------

    def page(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def samples(self) -> Samples:
        return [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(self.page())
            for sample in family.samples
        ]

    def replay(self) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "mx_exporter", "replay", str(self.log)],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise DemoFailed(f"replay failed: {done.stderr.decode().strip()}")
        return done.stdout.decode()


def total(samples: Samples, name: str, **labels: str) -> float:
    """Sum of the samples of a name that carry these labels."""
    return sum(v for n, ls, v in samples if n == name and labels.items() <= ls.items())


def mean(samples: Samples, family: str, **labels: str) -> str:
    count = total(samples, f"{family}_count", **labels)
    return f"{total(samples, f'{family}_sum', **labels) / count:6.1f} s" if count else "     -  "


def by(samples: Samples, name: str, label: str) -> str:
    """Non-zero totals of a name by one of its labels, as text."""
    values = sorted({ls[label] for n, ls, _ in samples if n == name})
    found = [(value, total(samples, name, **{label: value})) for value in values]
    return "  ".join(f"{value or 'between'} {n:g}" for value, n in found if n) or "none"


def table(samples: Samples) -> Iterator[str]:
    """What an operator would look at, from the page alone."""
    yield f"{'loads ended':26}{by(samples, 'mx_load_seconds_count', 'outcome')}"
    yield f"{'processes by release':26}{by(samples, 'mx_build_info', 'version')}"
    yield f"{'in progress, by phase':26}{by(samples, 'mx_loads_in_progress', 'phase')}"
    yield f"{'abandoned, by phase':26}{by(samples, 'mx_loads_abandoned_total', 'phase')}"
    for engine in ("vllm", "sglang"):
        took = mean(samples, "mx_load_seconds", engine=engine, outcome="success")
        yield f"{'mean load, ' + engine:26}{took}"
    for phase in ("artifact_install", "model_init", "chain", "publish"):
        yield f"{'mean ' + phase:26}{mean(samples, 'mx_load_phase_seconds', phase=phase)}"
    for phase in ("register", "receive"):
        took = mean(samples, "mx_p2p_source_attempt_phase_seconds", phase=phase)
        yield f"{'mean ' + phase:26}{took}"
    yield f"{'sources listed':26}{by(samples, 'mx_p2p_list_sources_total', 'result')}"
    yield f"{'attempts':26}{by(samples, 'mx_p2p_source_attempts_total', 'result')}"
    yield f"{'receives':26}{by(samples, 'mx_nixl_receive_total', 'result')}"
    yield f"{'data-plane errors':26}{by(samples, 'mx_nixl_data_plane_errors_total', 'kind')}"


def derived(page: str) -> list[str]:
    """The lines of the page that a replay has too: all but the exporter's own families."""
    own = ("mx_exporter_", "process_")
    return [
        line
        for line in page.splitlines()
        if not line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(own)
    ]


def run_once(demo: Demo) -> None:
    """One load a rank; then the page against a replay of the log."""
    for number, scenario in enumerate(FIRST_LOADS):
        demo.start_rank(number, scenario)
    for number in range(6):
        if status := demo.ranks[number].wait(120):
            raise DemoFailed(f"rank {number} ended with status {status}")
    demo.wait_receiving(6)
    demo.wait_receiving(7)
    demo.wait_killed(7)
    until(
        lambda: total(demo.samples(), "mx_loads_in_progress", phase="chain") == 1,
        "the page shows the load that hangs",
    )
    demo.end_rank(6, signal.SIGTERM)

    samples = until(
        lambda: (s := demo.samples()) and total(s, "mx_loads_abandoned_total") == 1 and s,
        "the page shows the load that was killed",
    )
    print("\n".join(table(samples)))
    page, replayed = derived(demo.page()), derived(demo.replay())
    if page != replayed:
        raise DemoFailed("the page and the replay of its log differ")
    count = sum(not line.startswith("#") for line in page)
    print(f"\nreplay of the log: the same {count} samples, byte for byte")


def run_live(demo: Demo) -> None:
    """Loads without end, and a table that follows them."""
    for number, scenario in enumerate(FIRST_LOADS):
        demo.start_rank(number, scenario, forever=True)
    demo.wait_receiving(6)
    print(
        f"""
  {demo.url}/           what this is, and the books
  {demo.url}/metrics    what Prometheus scrapes

  curl -s {demo.url}/metrics | grep ^mx_load_seconds_count
  curl -s {demo.url}/metrics | grep ^mx_loads_in_progress      # rank 6 hangs in its transfer
  curl -s {demo.url}/metrics | grep ^mx_loads_abandoned        # rank 7 is killed now and then
  mx-metrics replay {demo.log}
  mx-metrics check {demo.log}

{demo.pace} Ctrl-C ends it.
""",
        flush=True,
    )
    redraw = sys.stdout.isatty()
    drawn = 0
    while True:
        for _ in range(5):
            lines = list(table(demo.samples()))
            if redraw:
                if drawn:
                    print(f"\033[{drawn}F\033[J", end="")
                print("\n".join(lines), flush=True)
                drawn = len(lines)
            time.sleep(2)
        if not redraw:
            print("\n".join(lines), end="\n\n", flush=True)
        # Rank 7's pod is killed in the middle of a load, and started again.
        demo.wait_receiving(7)
        demo.wait_killed(7)
        demo.start_rank(7, "peer", "killed")


#: Commands to go on with, for a log that is there.
NEXT = """
  mx-metrics replay {log}          # the page, from the log alone
  mx-metrics replay --json {log}   # the same, one JSON object a series
  mx-metrics check {log}           # whether the log is whole
  less {segment}
"""


def show(*, once: bool, port: int | None, speed: float | None, keep: Path | None) -> None:
    """Run it: one load a rank with ``once``, else until Ctrl-C. A kept log is made in ``keep``.

    :raises DemoFailed: something of it did not happen.
    """
    # A `kill`, and a terminal that is closed, end all cleanly as well.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    demo = Demo(once=once, port=port, speed=speed or (60.0 if once else 10.0), keep=keep)
    try:
        demo.start_exporter()
        (run_once if once else run_live)(demo)
    except KeyboardInterrupt:
        print("\nended")
    finally:
        demo.end()
    if keep:
        segments = sorted(keep.glob("events-*.jsonl"))
        print(NEXT.format(log=keep, segment=segments[0] if segments else keep))
