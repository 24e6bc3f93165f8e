"""A guest in an engine's process: what it imports, costs and touches, and that it is opt-in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mx_emitter import enable_metrics, get_logger, metrics
from tests import support
from tests.support.emitting import Log, Program

SOURCE = Path(support.ROOT) / "emitter" / "mx_emitter"


@pytest.mark.parametrize("value", ["1", "true", "YES", " on ", "True\n"])
def test_the_variable_turns_it_on(value: str, log: Log, monkeypatch: Any) -> None:
    monkeypatch.setenv("MX_METRICS_ENABLED", value)
    assert enable_metrics() is True
    assert len(log.segments()) == 1


@pytest.mark.parametrize("value", [None, "", "0", "false", "no", "off", "2", "enabled", "y"])
def test_nothing_happens_while_it_is_off(value: str | None, program: Program) -> None:
    program.run(
        """
import logging, os, sys, threading, time
value = sys.argv[1] if len(sys.argv) > 1 else None
if value is None: del os.environ["MX_METRICS_ENABLED"]
else: os.environ["MX_METRICS_ENABLED"] = value
before = set(os.listdir("/proc/self/fd"))
from mx_emitter import enable_metrics, get_logger, metrics
def no_forks(**k): raise AssertionError("a hook was registered")
os.register_at_fork = no_forks
assert enable_metrics() is False
metrics.record_attempt("random", "success")
metrics.record_unknown(1)
with metrics.time_load("vllm", "m", "main"): get_logger().info("x")
with metrics.time_unknown("vllm"): pass
assert set(os.listdir("/proc/self/fd")) == before
assert threading.active_count() == 1
assert logging.getLogger().handlers == [] and logging.getLogger("mx_emitter").handlers == []
""",
        *([] if value is None else [value]),
    )
    assert not program.directory.exists()


def test_a_recorder_turns_it_on_too(log: Log) -> None:
    with metrics.time_load("vllm", "m", "main"):
        pass
    assert log.names() == ["load_started", "load_finished"]
    assert log.events()[0]["load_id"] == log.events()[1]["load_id"]


def test_enabling_looks_at_the_environment_again(log: Log, monkeypatch: Any) -> None:
    monkeypatch.setenv("MX_METRICS_ENABLED", "0")
    metrics.record_nixl_receive("empty")
    assert enable_metrics() is False
    monkeypatch.setenv("MX_METRICS_ENABLED", "1")
    metrics.record_nixl_receive("empty")
    assert not log.directory.exists()
    assert enable_metrics() is True
    metrics.record_nixl_receive("complete")
    assert [event["result"] for event in log.events()] == ["complete"]


def test_switched_off_it_says_so_and_goes_on_when_it_is_on_again(
    log: Log, monkeypatch: Any
) -> None:
    metrics.record_nixl_receive("complete")
    monkeypatch.setenv("MX_METRICS_ENABLED", "0")
    metrics.record_nixl_receive("partial")  # nobody has looked yet
    assert enable_metrics() is False
    metrics.record_nixl_receive("empty")
    get_logger().info("own")
    with metrics.time_load("vllm", "m", "main"):
        pass
    monkeypatch.setenv("MX_METRICS_ENABLED", "1")
    assert enable_metrics() is True
    metrics.record_nixl_receive("rejected")
    assert [event["result"] for event in log.events()] == ["complete", "partial", "rejected"]
    assert len(log.segments()) == 1
    log.check_books()


def test_enabling_close_to_the_recursion_limit(log: Log) -> None:
    raised: list[Any] = []

    def descend() -> None:
        nonlocal raised
        try:  # noqa: SIM105 - it would be a call
            descend()
        except RecursionError:
            pass
        try:
            enable_metrics(rank="none")
        except RecursionError as error:
            # There was no room to call it at all. Once it is called, it raises nothing.
            raised += (error.__traceback__,)

    descend()
    assert [trace.tb_next for trace in raised] == [None] * len(raised)
    assert enable_metrics() is True
    assert len(log.lines()) == 1


# --------------------------------------------------------------------------------------
# What is imported


def _modules(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env=support.clean_environment(),
    )
    return set(done.stdout.split())


def test_the_schema_alone_imports_the_standard_library_only() -> None:
    found = _modules("import mx_log.schema, mx_emitter; mx_emitter.__version__")
    assert not found & {"structlog", "orjson", "mx_emitter.api"}


def test_the_emitter_imports_nothing_of_the_exporter_nor_its_libraries() -> None:
    found = _modules(
        "from mx_emitter import metrics, enable_metrics, get_logger;"
        " import mx_emitter.commands.doctor"
    )
    roots = {name.partition(".")[0] for name in found}
    assert {"structlog", "orjson", "mx_emitter"} <= roots
    assert not roots & {"mx_exporter", "prometheus_client", "watchdog", "click", "h11", "torch"}
    for path in SOURCE.rglob("*.py"):
        assert "mx_exporter" not in path.read_text()


def test_an_event_imports_nothing(tmp_path: Path) -> None:
    """A fork while another thread imports would leave the child a lock that nobody releases."""
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            """
import os, sys, tempfile
from mx_emitter import enable_metrics, get_logger, metrics
os.environ.update(MX_METRICS_ENABLED="1", MX_METRICS_DIR=tempfile.mkdtemp())
before = set(sys.modules)
enable_metrics()
with metrics.time_load("vllm", "m", "main"): metrics.record_attempt("random", float("nan"))
try: raise ValueError
except ValueError: get_logger().exception("x")
print(*set(sys.modules) - before)
""",
        ],
        capture_output=True,
        text=True,
        check=True,
        env=support.clean_environment(TMPDIR=str(tmp_path)),
    )
    assert found.stdout.split() == []


def test_nothing_global_is_registered_or_configured() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        for word in ("atexit.register", "structlog.configure(", "basicConfig", "Thread("):
            assert word not in text, f"{path.name}: {word}"
        # The one handler is for the client's own loggers, on request.
        assert ("addHandler" in text) == (path.name == "log_capture.py")


def test_a_bare_wheel_emits(bare_venv: Path, tmp_path: Path) -> None:
    directory = tmp_path / "log"
    code = """
import importlib.util
from mx_emitter import enable_metrics, get_logger, metrics
assert importlib.util.find_spec("prometheus_client") is None
assert enable_metrics()
with metrics.time_load("vllm", "m", "main"): metrics.record_attempt("random", "success")
get_logger().info("own")
"""
    env = support.clean_environment(MX_METRICS_ENABLED="1", MX_METRICS_DIR=str(directory))
    subprocess.run([bare_venv, "-W", "error", "-c", code], check=True, env=env, cwd=tmp_path)
    assert Log(directory).names() == ["load_started", "source_attempted", "load_finished", "own"]
    subprocess.run([bare_venv, "-m", "mx_emitter"], check=True, env=env, cwd=tmp_path)
