"""An engine and its exporter in one container: real processes, real signals."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mx_activate import SITE
from tests import support
from tests.support import running, serving

BIN = Path(sys.executable).parent / "mx-metrics"
PYTHON = sys.executable


# --------------------------------------------------------------------------------------
# What the engine gets, and what its end gives


@pytest.mark.parametrize("status", [0, 1, 7, 255])
def test_the_exit_status_is_the_engines(
    status: int, spawn: support.Spawner, tmp_path: Path
) -> None:
    run = running.start(spawn, tmp_path, "sh", "-c", f"exit {status}")
    assert run.process.result() == status
    assert "ERROR" not in run.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_an_engine_that_a_signal_ends(
    number: signal.Signals, spawn: support.Spawner, tmp_path: Path
) -> None:
    run = running.start(spawn, tmp_path, "sh", "-c", f"ulimit -c 0; kill -{number.value} $$")
    assert run.process.result() == 128 + number


def test_no_such_command_and_one_that_cannot_be_run(spawn: support.Spawner, tmp_path: Path) -> None:
    run = running.start(spawn, tmp_path, "no-such-command")
    assert run.process.result() == 127
    assert "cannot run no-such-command: No such file or directory" in run.log
    (tmp_path / "plain").write_text("")
    run = running.start(spawn, tmp_path, tmp_path / "plain")
    assert run.process.result() == 126
    assert f"cannot run {tmp_path}/plain: Permission denied" in run.log


def test_the_end_of_an_engine_that_logged_nothing_says_so(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    serving.attempts(tmp_path, 1)  # of an earlier run
    run = running.start(spawn, tmp_path, "true")
    assert run.process.result() == 0
    assert f"WARNING the engine logged nothing into {tmp_path}: " in run.log
    code = "from mx_emitter import enable_metrics; enable_metrics()"
    run = running.start(spawn, tmp_path, PYTHON, "-c", code)
    assert run.process.result() == 0
    assert "logged nothing" not in run.log


def test_without_a_command_it_is_used_wrongly(spawn: support.Spawner, tmp_path: Path) -> None:
    process = spawn.python("-m", "mx_exporter", "run", "--dir", tmp_path)
    assert process.result() == 2
    assert len(process.error_output.splitlines()) == 1


SHOW = """
import json, os, sys
print(json.dumps({
    "arguments": sys.argv[1:],
    "environ": dict(os.environ),
    "descriptors": sorted(fd for fd in os.listdir("/proc/self/fd")),
    "group": os.getpgid(0) == os.getpgid(os.getppid()),
}))
"""


def test_run_changes_nothing_that_the_engine_sees(spawn: support.Spawner, tmp_path: Path) -> None:
    arguments = ("--help", "-x", "--", "--dir", "a b", "")
    alone = spawn(PYTHON, "-c", SHOW, *arguments)
    assert alone.result() == 0
    there = json.loads(alone.output)
    process = spawn(
        *(BIN, "run", "--dir", "log", "--port", "0", "--", PYTHON, "-c", SHOW, *arguments),
        cwd=tmp_path,
    )
    assert process.result() == 0, process.error_output
    here = json.loads(process.output)
    assert here["arguments"] == list(arguments)
    assert here["descriptors"] == there["descriptors"]
    # The terminal's: Ctrl-C must reach it.
    assert here["group"]
    ours = {"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(tmp_path / "log")}
    changed = {k: v for k, v in here["environ"].items() if there["environ"].get(k) != v}
    changed.pop("PWD", None)
    # Where the published client's recorders come to log.
    assert SITE in changed.pop("PYTHONPATH").split(os.pathsep)
    assert changed == ours
    assert (tmp_path / "log").is_dir()


def test_run_changes_no_signal_handling_of_the_engine(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    """Python ignores some, which what it starts would go on to do."""
    show = ("grep", "^Sig[BIC]", "/proc/self/status")
    alone = spawn(*show)
    assert alone.result() == 0
    run = running.start(spawn, tmp_path, *show)
    assert run.process.result() == 0
    assert run.process.output == alone.output


def test_what_the_engine_logs_is_served_at_once(spawn: support.Spawner, tmp_path: Path) -> None:
    run = running.start_rank(spawn, tmp_path / "log", 5)
    support.wait_until(lambda: run.received() == 5)
    running.end(run, 3)
    assert run.process.output == "logged\n"


# --------------------------------------------------------------------------------------
# Signals


def test_signals_are_passed_on_once(spawn: support.Spawner, tmp_path: Path) -> None:
    names = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGWINCH", "SIGCONT", "SIGALRM"]
    run = running.start(spawn, tmp_path, PYTHON, "-c", running.LISTENER, *names)
    said = ["listening"]
    run.say(*said)
    for name in [*names, "SIGTERM", "SIGUSR2"]:
        run.process.send_signal(getattr(signal, name))
        said.append(name)
        run.say(*said)
    assert run.process.result() == 5


def test_an_engine_that_ignores_sigterm_is_not_abandoned(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    run = running.start(spawn, tmp_path, PYTHON, "-c", running.LISTENER, "SIGTERM")
    run.say("listening")
    run.process.send_signal(signal.SIGTERM)
    run.say("listening", "SIGTERM")
    support.wait_until(run.exporter.ready)
    # Whoever started us goes on to SIGKILL in the end; here it is the engine that gets it.
    running.kill(run.engine_pid())
    assert run.process.result() == 128 + signal.SIGKILL


#: Runs a command in a process group of its own, as a shell does.
SHELL = """
import os, subprocess, sys
sys.exit(subprocess.run(sys.argv[1:], preexec_fn=os.setpgrp).returncode)
"""


def test_a_shell_can_stop_and_continue_it(spawn: support.Spawner, tmp_path: Path) -> None:
    command = (*(BIN, "run", "--dir", tmp_path, "--port", "0", "--"), PYTHON, "-c")
    shell = spawn(PYTHON, "-c", SHELL, *command, running.LISTENER)
    run = running.Running(shell, 0)
    run.say("listening")
    (pid,) = running.children_of(shell.pid)
    try:
        engine = next(p for p, c in running.children_of(pid).items() if " run " not in c)
        for _ in range(2):
            os.kill(pid, signal.SIGTSTP)
            support.wait_until(lambda: running.state_of(pid) == "T")
            support.wait_until(lambda: running.state_of(engine) == "T")
            os.kill(pid, signal.SIGCONT)
            support.wait_until(lambda: running.state_of(engine) == "S")
        os.kill(pid, signal.SIGUSR2)
        assert shell.result() == 5
        pid = 0
    finally:
        if pid:
            os.killpg(pid, signal.SIGKILL)


def test_sigtstp_is_ignored_without_job_control(spawn: support.Spawner, tmp_path: Path) -> None:
    """The kernel lets no group stop that no shell looks after."""
    run = running.start(spawn, tmp_path, PYTHON, "-c", running.LISTENER)
    run.say("listening")
    run.process.send_signal(signal.SIGTSTP)
    run.process.send_signal(signal.SIGUSR2)
    assert run.process.result() == 5


def test_ctrl_c_reaches_the_engine_once(tmp_path: Path) -> None:
    """Ctrl-C comes to the process group; sent on as well, it would come to the engine twice."""
    port = support.free_port()
    command = [
        *(PYTHON, "-m", "mx_exporter", "run", "--dir", str(tmp_path)),
        *("--listen", f"127.0.0.1:{port}", "--", PYTHON, "-c", running.LISTENER, "SIGINT"),
    ]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(PYTHON, command, support.clean_environment())
    said = b""
    try:

        def read(until: bytes, times: int = 1) -> None:
            nonlocal said
            while said.count(until) < times:
                said += os.read(terminal, 4096)

        read(b"listening")
        exporter = serving.Exporter(None, "127.0.0.1", port)  # type: ignore[arg-type]

        def served() -> bool:
            try:
                return exporter.get("/readyz").status == 200
            except OSError:
                return False

        support.wait_until(served)
        children = running.children_of(pid)
        assert len(children) == 2
        # Twice might look like once, when the second comes before the first was taken.
        for presses in range(1, 21):
            os.write(terminal, b"\x03")
            read(b"SIGINT", presses)
        # The exporter is still there, out of the key's reach.
        assert running.children_of(pid) == children
        groups = {os.getpgid(child) == os.getpgid(pid) for child in children}
        assert groups == {True, False}
        os.kill(pid, signal.SIGUSR2)
        read(b"SIGUSR2")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
        pid = 0
        assert said.count(b"SIGINT") == 20
    finally:
        os.close(terminal)
        if pid:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


# --------------------------------------------------------------------------------------
# Orphans, and process 1

#: Leaves 20 orphans that end, and waits until none of them is a zombie.
ORPHANS = """
import os, re, subprocess, sys, time
for _ in range(20):
    subprocess.run(["sh", "-c", "(exit 3) & (sleep 0.01; exit 4) &"], check=True)
def zombies():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = open(f"/proc/{pid}/status").read()
        except OSError:
            continue
        if "State:\\tZ" in text and "\\nPPid:\\t1\\n" in text:
            found.append(pid)
    return found
print(os.getppid(), flush=True)
deadline = time.monotonic() + 30
while zombies() and time.monotonic() < deadline:
    time.sleep(0.02)
sys.exit(9 if zombies() else 6)
"""

NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.fixture(scope="module")
def namespace() -> tuple[str, ...]:
    """A command that makes what follows it process 1."""
    try:
        made = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return tuple(support.leave_out("needs unshare"))
    if made.returncode:
        return tuple(support.leave_out("PID namespaces are refused here"))
    return NAMESPACE


def test_process_1_reaps_orphans(
    namespace: tuple[str, ...], spawn: support.Spawner, tmp_path: Path
) -> None:
    process = spawn(
        *(*namespace, BIN, "run", "--dir", tmp_path, "--port", "0"),
        *("--", PYTHON, "-c", ORPHANS),
    )
    assert process.result() == 6, process.error_output
    assert process.output == "1\n"


def test_process_1_passes_signals_on(
    namespace: tuple[str, ...], spawn: support.Spawner, tmp_path: Path
) -> None:
    process = spawn(
        *(*namespace, BIN, "run", "--dir", tmp_path, "--port", "0"),
        *("--", PYTHON, "-c", running.LISTENER, "SIGTERM"),
    )
    run = running.Running(process, 0)
    run.say("listening")
    (first,) = running.children_of(process.pid)
    # From outside, as the container's runtime sends it.
    running.kill(first, signal.SIGTERM)
    run.say("listening", "SIGTERM")
    running.kill(first, signal.SIGUSR2)
    assert process.result() == 5


def test_living_orphans_are_not_waited_for(spawn: support.Spawner, tmp_path: Path) -> None:
    run = running.start(spawn, tmp_path, "sh", "-c", "sleep 600 & echo $!; exit 4")
    assert run.process.result() == 4
    orphan = int(run.process.output)
    assert running.state_of(orphan) == "S"
    running.kill(orphan)


# --------------------------------------------------------------------------------------
# The engine's life does not depend on the exporter


def test_an_exporter_that_is_killed_comes_back(spawn: support.Spawner, tmp_path: Path) -> None:
    run = running.start_rank(spawn, tmp_path, 4)
    support.wait_until(lambda: run.received() == 4)
    engine, killed = run.engine_pid(), run.exporter_pid()
    running.kill(killed)
    support.wait_until(lambda: run.exporter_pid() not in (0, killed))
    support.wait_until(lambda: run.received() == 4)
    assert re.search(r"ERROR the exporter ended \(signal 9\); it is started again in 1 s", run.log)
    assert run.engine_pid() == engine
    running.end(run, 2)


def test_a_port_that_is_taken(spawn: support.Spawner, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        run = running.start_rank(
            *(spawn, tmp_path),
            port=port,
            options=("--listen", f"127.0.0.1:{port}"),
            env={"MX_METRICS_BIND_RETRY_SECS": "1"},
        )
        support.wait_until(lambda: "the port is in use by another program" in run.log)
        # The directory is kept all the same.
        support.wait_until(lambda: "this exporter owns" in run.log)
        exporter = run.exporter_pid()
    support.wait_until(lambda: run.received() == 3)
    assert run.exporter_pid() == exporter
    running.end(run)


def test_a_directory_that_cannot_be_had(spawn: support.Spawner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = running.start_rank(spawn, tmp_path / "file" / "log")
    assert f"ERROR {tmp_path}/file/log could not be prepared: " in run.log
    running.end(run, 1)


@pytest.mark.parametrize(
    ("name", "text"), [("MX_METRICS_PORT", "http"), ("MX_METRICS_MAX_SERIES", "many")]
)
def test_a_bad_variable_is_a_warning(
    name: str, text: str, spawn: support.Spawner, tmp_path: Path
) -> None:
    process = spawn(
        *(BIN, "run", "--dir", tmp_path, "--", "sh", "-c", "exit 3"),
        env={"MX_METRICS_PORT": str(support.free_port()), name: text},
    )
    assert process.result() == 3
    warning = f"WARNING {name}: bad value {text!r}: expected "
    assert process.error_output.count(warning) == 1, process.error_output


def test_a_bad_port_in_the_environment_is_no_endpoint(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    run = running.start_rank(spawn, tmp_path, port=0, env={"MX_METRICS_PORT": "http"}, options=())
    support.wait_until(lambda: "no endpoint (port 0 or below)" in run.log)
    running.end(run)


@pytest.mark.parametrize(
    "options", [("--port", "http"), ("--max-series", "0"), ("--port", "1", "--listen", ":1")]
)
def test_a_bad_flag_starts_nothing(
    options: tuple[str, ...], spawn: support.Spawner, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    process = spawn(BIN, "run", *options, "--", "touch", made)
    assert process.result() == 2
    assert len(process.error_output.splitlines()) == 1
    assert not made.exists()


def test_when_run_is_killed_the_exporter_ends_and_the_engine_lives(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    run = running.start_rank(spawn, tmp_path)
    support.wait_until(lambda: run.received() == 3)
    engine, exporter = run.engine_pid(), run.exporter_pid()
    running.kill(run.process.pid)
    assert run.process.result() == -signal.SIGKILL
    support.wait_until(lambda: running.state_of(exporter) in ("gone", "Z"))
    assert running.state_of(engine) == "S"
    running.kill(engine)


# --------------------------------------------------------------------------------------
# Before and after


def leftovers(directory: Path) -> None:
    serving.attempts(directory, 7)
    (directory / "model.db").write_text("not ours")


def test_reset_removes_what_earlier_runs_left(spawn: support.Spawner, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    leftovers(log)
    run = running.start_rank(spawn, log, options=("--reset",))
    support.wait_until(lambda: run.received() == 3)
    assert "mx_p2p_source_attempts_total{" not in run.exporter.get().text
    assert (log / "model.db").exists()
    running.end(run)
    # What the reset says is not mixed with what the engine says.
    assert run.process.output == "logged\n"


def test_without_reset_counters_go_on(spawn: support.Spawner, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for total in (3, 6):
        run = running.start_rank(spawn, log)
        support.wait_until(lambda run=run, total=total: run.received() == total)
        running.end(run)


def test_a_reset_that_is_refused_is_a_warning(spawn: support.Spawner, tmp_path: Path) -> None:
    log = tmp_path / "log"
    other = running.start_rank(spawn, log)
    support.wait_until(lambda: other.received() == 3)
    run = running.start_rank(spawn, log, 4, options=("--reset",))
    assert "what earlier runs left was not removed (exit status 1); going on with it" in run.log
    support.wait_until(lambda: other.received() == 7)
    running.end(run)
    running.end(other)


def test_what_remains_at_the_end_is_shipped(spawn: support.Spawner, tmp_path: Path) -> None:
    log, archive = tmp_path / "log", tmp_path / "archive"
    archive.mkdir()
    rank = (PYTHON, "-c", running.RANK, "2000")
    run = running.start(spawn, log, *rank, options=("--tee", "--archive-dir", archive))
    assert run.process.result() == 0, run.log
    assert run.process.output.count('"event":"nixl_received"') == 2000
    archived = [path.name for path in archive.iterdir()]
    assert archived == [f"{path.name}.gz" for path in log.glob("events-*.jsonl")]
    assert "ERROR" not in run.log


#: An engine that writes a segment at its very end, which nobody sees with a lock.
LATE = """
import sys
sys.stdin.readline()
with open(sys.argv[1], "rb") as source, open(sys.argv[2], "wb") as target:
    target.write(source.read())
"""


def test_what_came_at_the_very_end_is_shipped_at_once(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    """Nobody comes to look at it again, a second later."""
    log, elsewhere, archive = tmp_path / "log", tmp_path / "elsewhere", tmp_path / "archive"
    for directory in (log, elsewhere, archive):
        directory.mkdir()
    source = support.Lines().segment(elsewhere, 0, [])
    engine = (PYTHON, "-c", LATE, source, log / source.name)
    options = ("--tee", "--archive-dir", archive)
    run = running.start(spawn, log, *engine, options=options, stdin=subprocess.PIPE)
    support.wait_until(run.exporter.ready)
    assert run.process.stdin is not None
    run.process.stdin.write(b"\n")
    run.process.stdin.close()
    assert run.process.result() == 0, run.log
    assert run.process.output.count('"event":"process_started"') == 1
    assert [path.name for path in archive.iterdir()] == [f"{source.name}.gz"]


def test_an_engine_may_end_before_its_exporter_has_come_up(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    serving.attempts(log, 7)
    run = running.start(spawn, log, "true", options=("--tee",))
    assert run.process.result() == 0
    assert run.process.output.count('"event":"source_attempted"') == 7
    assert "ERROR" not in run.log
