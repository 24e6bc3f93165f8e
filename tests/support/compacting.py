"""Exporters that own a directory and compact it, and real ranks beside them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests import support
from tests.support import serving

#: Bounds that compact after some 20 kB.
SMALL = {"MX_METRICS_RETAIN_BYTES": "20000", "MX_METRICS_BIND_RETRY_SECS": "1"}

NOBODY = 65534

RANK = """
import sys, time
from mx_emitter import enable_metrics, metrics
enable_metrics(rank=int(sys.argv[1]))
for number in range(int(sys.argv[2])):
    metrics.record_list_sources("random", "ok" if number % 3 else "empty")
    metrics.observe_transfer_seconds("random", "success", number / 7)
    if number % 20 == 0:
        time.sleep(0.02)
print("done", flush=True)
sys.stdin.read()
"""

#: The command line after it has become nobody: everything is imported before, since the
#: interpreter may lie where others cannot read. It looks at the directory from within, as
#: pytest's own directories are for their user alone.
AS_NOBODY = f"""
import encodings.idna, importlib, sys, os
from mx_exporter.cli import extras, main as cli
from mx_exporter.service import serve
from mx_exporter.pages import site
from watchdog.observers import inotify
for template in site._environment().list_templates(): site._environment().get_template(template)
site.policy()
for package in extras.PACKAGES: importlib.import_module(package)
from mx_exporter.pages import site
site.page("status.html.jinja", sections=(), links=(), version="")
os.chdir(sys.argv.pop(1))
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
sys.exit(cli.main(sys.argv[1:]))
"""


def start(
    spawn: support.Spawner,
    directory: Path,
    *options: str,
    env: dict[str, str] | None = None,
    **more: Any,
) -> serving.Exporter:
    """An exporter with small bounds that compacts at once, on a free port."""
    given = ("--retain-seconds", "0", *options)
    return serving.start(spawn, directory, *given, env={**SMALL, **(env or {})}, **more)


def as_nobody(spawn: support.Spawner, directory: Path) -> serving.Exporter:
    """The same as a user who owns nothing."""
    if os.geteuid() != 0:
        support.leave_out("only root can become another user")
    port = support.free_port()
    process = spawn.python(
        *("-c", AS_NOBODY, directory, "serve", "--dir", ".", "--listen", f"127.0.0.1:{port}"),
        *("--retain-seconds", "0"),
        env=SMALL,
    )
    exporter = serving.Exporter(process, "127.0.0.1", port)
    support.wait_until(exporter.ready)
    return exporter


def wait_for_compaction(exporter: serving.Exporter) -> None:
    support.wait_until(lambda: exporter.get().sample("mx_exporter_compactions_total"))


def stop(exporter: serving.Exporter, how: signal.Signals = signal.SIGTERM) -> None:
    exporter.process.send_signal(how)
    expected = 0 if how == signal.SIGTERM else -how
    assert exporter.process.result() == expected, exporter.log


def start_ranks(spawn: support.Spawner, directory: Path, count: int, loops: int) -> list[Any]:
    """Real ranks that log two events a loop, then stay alive until they are killed."""
    env = {
        "MX_METRICS_ENABLED": "1",
        "MX_METRICS_DIR": str(directory),
        "MX_METRICS_SEGMENT_BYTES": "5000",
    }
    return [
        spawn.python("-c", RANK, str(rank), str(loops), env=env, stdin=subprocess.PIPE)
        for rank in range(count)
    ]


def all_done(ranks: Iterable[support.Process]) -> bool:
    return all("done" in rank.output for rank in ranks)


def fill(directory: Path, proc: str, segments: int, attempts: int = 20) -> None:
    """Finished segments of one process, of some 4 kB each."""
    directory.mkdir(exist_ok=True)
    log = support.Lines(proc)
    event = ("source_attempted", {"policy": "random", "result": "success"})
    for n in range(segments):
        log.segment(directory, n, [event] * attempts)


def directory_size(directory: Path) -> int:
    """Bytes of all files in a directory; one that vanishes meanwhile counts nothing."""
    total = 0
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as there:
        mount = ["unshare", "-m", "mount", "-t", "tmpfs", "none", there]
        try:
            return subprocess.run(mount, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            return False


def serve_command(directory: Path, port: int) -> list[str]:
    listen = f"127.0.0.1:{port}"
    return [
        sys.executable,
        "-m",
        "mx_exporter",
        "serve",
        "--dir",
        str(directory),
        "--listen",
        listen,
    ]
