"""A guest in an engine's process: what it imports, costs and touches, and that it is opt-in."""

from __future__ import annotations

import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

import support
from emitting import Log, Program
from mx_emitter import enable_metrics, get_logger, metrics
from mx_emitter.context.rank import find_rank
from mx_emitter.log.sink import sink
from mx_emitter.settings import DEFAULT_SEGMENT_BYTES, read_settings

SOURCE = Path(support.ROOT) / "emitter" / "mx_emitter"


@pytest.mark.parametrize("value", ["1", "true", "YES", " on ", "True\n"])
def test_is_on_when_it_is_told_so(value: str, log: Log, monkeypatch: Any) -> None:
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


# --------------------------------------------------------------------------------------
# Settings


def test_defaults() -> None:
    settings = read_settings({})
    assert settings.directory == "/tmp/mx-metrics"
    assert (settings.enabled, settings.named, settings.scheme) == (False, False, "")
    assert settings.segment_bytes == DEFAULT_SEGMENT_BYTES == 1 << 20
    assert settings.max_bytes == 32 << 20
    assert settings.problems == ()


@pytest.mark.parametrize(
    "value", ["x", "-1", "0", "1.5", "1e6", "9" * 5000, "9" * 19, "1M", "nan", "1_000_000", "٤٠٩٦"]
)
@pytest.mark.parametrize("name", ["MX_METRICS_SEGMENT_BYTES", "MX_METRICS_MAX_BYTES"])
def test_a_bad_size_is_the_default_and_one_warning(
    name: str, value: str, log: Log, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setenv(name, value)
    metrics.record_nixl_receive("empty")
    metrics.record_nixl_receive("empty")
    assert sink.stream is not None
    assert sink.stream.settings.segment_bytes == 1 << 20
    assert sink.stream.settings.max_bytes == 32 << 20
    (message,) = caplog.messages
    assert name in message
    assert len(log.events()) == 2


def test_a_segment_is_at_most_an_eighth_of_the_limit() -> None:
    settings = read_settings(
        {"MX_METRICS_SEGMENT_BYTES": "5000", "MX_METRICS_MAX_BYTES": " 16000 "}
    )
    assert (settings.segment_bytes, settings.max_bytes) == (2000, 16000)
    assert read_settings({"MX_METRICS_MAX_BYTES": "1"}).segment_bytes == 1


def test_directories(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/elsewhere")
    assert read_settings({"MX_METRICS_DIR": " \t"}).named is False
    assert read_settings({"MX_METRICS_DIR": " /a/b "}).directory == "/a/b"
    assert read_settings({"MX_METRICS_DIR": "a"}).directory == str(tmp_path / "a")


def test_text_that_is_no_utf8() -> None:
    settings = read_settings({"MX_METRICS_SCHEME": "\udcff", "POD_NAME": "\udcff"})
    assert settings.scheme == settings.pod.name == r"\udcff"


# --------------------------------------------------------------------------------------
# Rank


class Distributed:
    def __init__(self, rank: Any, initialized: bool = True) -> None:
        self.rank = rank
        self.initialized = initialized

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self.initialized

    def get_rank(self) -> Any:
        if isinstance(self.rank, Exception):
            raise self.rank
        return self.rank


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, (None, "nowhere")),
        ({"RANK": "3", "LOCAL_RANK": "1"}, (3, "RANK")),
        ({"RANK": "x", "OMPI_COMM_WORLD_RANK": " 4 "}, (4, "OMPI_COMM_WORLD_RANK")),
        ({"RANK": "-1", "SLURM_PROCID": "0", "LOCAL_RANK": "1"}, (0, "SLURM_PROCID")),
        ({"RANK": "", "LOCAL_RANK": "1"}, (1, "LOCAL_RANK")),
        ({"RANK": "9" * 5000}, (None, "nowhere")),
        ({"RANK": "1_0", "LOCAL_RANK": "٣"}, (None, "nowhere")),
    ],
)
def test_rank_of_the_environment(environ: dict[str, str], found: object) -> None:
    assert find_rank(environ) == found


@pytest.mark.parametrize(
    ("distributed", "rank"),
    [
        (Distributed(5), 5),
        (Distributed(-1), 3),
        (Distributed(5, initialized=False), 3),
        (Distributed(RuntimeError("not in a group")), 3),
        (object(), 3),
    ],
    ids=["initialised", "in-no-group", "not-initialised", "raising", "half-imported"],
)
def test_rank_of_torch(distributed: object, rank: int, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    assert find_rank({"RANK": "3"})[0] == rank


def test_the_rank_is_looked_for_again_at_each_load(log: Log, monkeypatch: Any) -> None:
    monkeypatch.setenv("RANK", "3")
    metrics.record_nixl_receive("empty")
    monkeypatch.setitem(sys.modules, "torch.distributed", Distributed(5))
    metrics.record_nixl_receive("empty")
    with metrics.time_load("vllm", "m", "main"):
        pass
    assert enable_metrics(rank=8)
    with metrics.time_load("vllm", "m", "main"):
        pass
    assert [line["rank"] for line in log.lines()] == [3, 3, 3, 5, 5, 8, 8]


@pytest.mark.parametrize("rank", ["3", -1, True, 2.0, 2**63, object()])
def test_what_is_no_rank_is_said_and_passed_over(
    rank: object, log: Log, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setenv("RANK", "4")
    assert enable_metrics(rank=rank) is True
    assert log.lines()[0]["rank"] == 4
    assert len(caplog.messages) == 1


def test_a_rank_that_cannot_be_asked_for_its_class(log: Log, caplog: Any) -> None:
    assert enable_metrics(rank=weakref.proxy(set())) is True
    assert log.lines()[0]["rank"] is None
    assert len(caplog.messages) == 1


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
    assert not roots & {"mx_exporter", "prometheus_client", "watchdog", "click", "uvicorn", "torch"}
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
