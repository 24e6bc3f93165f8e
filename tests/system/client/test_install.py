"""`install()` routes the recorders of the real client, whoever imported them first."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from tests import support

#: What the client would do with metrics, if it were not routed.
USES = """
from modelexpress.metrics import enable_metrics, metrics
assert enable_metrics() is True
metrics.record_attempt("random", "success")
with_seconds = getattr(metrics, "time_source_attempt_phase", None)
if with_seconds is not None:
    with metrics.time_load("vllm", "m", "main"), with_seconds("random", "receive") as span:
        pass
    assert span.seconds > 0
"""


def events_of(program) -> list[str]:
    """What `USES` logs."""
    if program.version == "0.6.0":
        return ["source_attempted"]
    return [
        "source_attempted",
        "load_started",
        "source_attempt_phase_started",
        "source_attempt_phase_finished",
        "load_finished",
    ]


ORDERS = {
    "client first": """
from modelexpress.metrics import enable_metrics, metrics
from mx_emitter.modelexpress import install
assert install() is True
""",
    "ours first": """
import sys
from mx_emitter.modelexpress import install
assert install() is True
assert "modelexpress" not in sys.modules
""",
    "twice": """
from mx_emitter.modelexpress import install
assert install() is install() is True
import modelexpress.metrics
before = dict(vars(modelexpress.metrics.metrics))
assert install() is True
assert vars(modelexpress.metrics.metrics) == before
""",
    "reloaded": """
import importlib
from mx_emitter.modelexpress import install
assert install() is True
import modelexpress.metrics
importlib.reload(modelexpress.metrics)
""",
}


@pytest.mark.parametrize("order", ORDERS)
def test_every_importer_is_reached(order: str, program, tmp_path: Path) -> None:
    client = tmp_path / "client"
    port = support.free_port()
    process = program.run(
        f"{ORDERS[order]}{USES}import sys; assert 'prometheus_client' not in sys.modules",
        PROMETHEUS_MULTIPROC_DIR=str(client),
        MX_METRICS_PORT=str(port),
        MX_METRICS_PUSHGATEWAY="http://127.0.0.1:1",
    )
    assert program.log.names() == events_of(program)
    assert program.log.lines()[0]["version"] == program.version
    assert list(client.iterdir()) == []  # the client makes it, and that is all
    assert process.error_output == ""


def test_with_metrics_off_nothing_is_touched(program) -> None:
    program.run(
        """
import sys
import modelexpress.metrics as client
from mx_emitter.modelexpress import install
before, path = dict(vars(client.metrics)), list(sys.meta_path)
assert install() is False
assert vars(client.metrics) == before and sys.meta_path == path
assert client.enable_metrics() is False
""",
        MX_METRICS_ENABLED="0",
    )
    assert not program.directory.exists()


def test_a_client_that_is_being_imported_in_another_thread(program) -> None:
    """The other thread asked for it before there was a hook, and is in the middle of it."""
    program.run(
        """
import importlib.machinery, sys, threading, time
begun, go = threading.Event(), threading.Event()

class Slow:  # holds the import up where the module is there, and empty
    def find_spec(self, name, path=None, target=None):
        if name != "modelexpress.metrics": return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        whole = spec.loader.exec_module
        def exec_module(module):
            begun.set(); assert go.wait(60); whole(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Slow())
importer = threading.Thread(target=__import__, args=("modelexpress.metrics",))
importer.start()
assert begun.wait(60)
from mx_emitter import modelexpress
results = []
installer = threading.Thread(target=lambda: results.append(modelexpress.install()))
installer.start()
# It waits for the import, and not with its hands empty.
while type(sys.meta_path[0]).__name__ != "_Finder": time.sleep(0.001)
go.set(); importer.join(60); installer.join(60)
assert results == [True], results
"""
        + USES
    )
    assert program.log.names() == events_of(program)


def test_threads_that_install_while_threads_import(program) -> None:
    program.run(
        """
import threading
from mx_emitter.modelexpress import install
start = threading.Barrier(8)
problems = []
def importing():
    start.wait()
    from modelexpress.metrics import metrics
    # Whoever has it once install() returned has it routed.
def installing():
    start.wait()
    if install() is not True: problems.append("not installed")
threads = [threading.Thread(target=f) for f in (importing, installing) * 4]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not problems
"""
        + USES
    )
    assert program.log.names() == events_of(program)


def test_a_port_that_was_bound_stays_bound_and_that_is_said(program, tmp_path: Path) -> None:
    port = support.free_port()
    process = program.run(
        f"""
import os, socket, urllib.request
from modelexpress.metrics import enable_metrics, metrics
assert enable_metrics() and metrics._bind_owner
metrics.record_attempt("random", "success")
before = set(os.listdir({str(tmp_path / "client")!r}))
from mx_emitter.modelexpress import install
assert install() and install()
metrics.record_attempt("random", "success")
page = urllib.request.urlopen("http://127.0.0.1:{port}/metrics").read().decode()
(line,) = [x for x in page.splitlines() if x.startswith("mx_p2p_source_attempts_total{{")]
assert line.endswith(" 1.0"), line
assert set(os.listdir({str(tmp_path / "client")!r})) == before
""",
        MX_METRICS_PORT=str(port),
        PROMETHEUS_MULTIPROC_DIR=str(made(tmp_path / "client")),
    )
    assert program.log.names() == ["source_attempted"]
    assert process.error_output.count(f"the client has bound its port {port} already") == 1


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def test_a_thread_that_waits_for_the_port_does_not_get_it(program, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = program.start(
            f"""
import sys, threading
from modelexpress.metrics import enable_metrics, metrics
assert enable_metrics() and not metrics._bind_owner
waiting = metrics._retry_thread
assert waiting.is_alive()
from mx_emitter.modelexpress import install
assert install()
print("installed", flush=True)
sys.stdin.read()
waiting.join(60)
assert not waiting.is_alive() and not metrics._bind_owner
import socket
with socket.socket() as free: free.bind(("", {port}))
""",
            MX_METRICS_PORT=str(port),
            MX_METRICS_BIND_RETRY_SECS="1",
            PROMETHEUS_MULTIPROC_DIR=str(made(tmp_path / "client")),
        )
        support.wait_until(lambda: "installed" in process.output or process.poll() is not None)
    assert process.result() == 0, process.error_output


@pytest.mark.parametrize("when", ["before", "after"])
def test_nothing_is_pushed(when: str, program) -> None:
    """Whether the client had arranged for a push at the exit, or is asked for one."""
    with socket.socket() as gateway:
        gateway.bind(("127.0.0.1", 0))
        gateway.listen()
        gateway.settimeout(0)
        enable = "from modelexpress.metrics import enable_metrics; assert enable_metrics()\n"
        install = "from mx_emitter.modelexpress import install; assert install()\n"
        program.run(
            (enable + install if when == "before" else install + enable)
            + ("" if when == "before" else
               "from modelexpress.metrics import push_metrics_if_enabled as push; push()\n"),
            MX_METRICS_PUSHGATEWAY=f"http://127.0.0.1:{gateway.getsockname()[1]}",
        )  # fmt: skip
        with pytest.raises(BlockingIOError):
            gateway.accept()


# --------------------------------------------------------------------------------------
# Other clients


def other(client: Path, to: Path, version: str, more: str = "") -> Path:
    """The client's code as if it were another release, with ``more`` at its end."""
    (to / "modelexpress").mkdir(parents=True)
    for name in ("__init__.py", "envs.py", "metrics.py"):
        shutil.copy(client / "modelexpress" / name, to / "modelexpress" / name)
    (to / f"modelexpress-{version}.dist-info").mkdir()
    (to / f"modelexpress-{version}.dist-info" / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: modelexpress\nVersion: {version}\n"
    )
    with open(to / "modelexpress" / "metrics.py", "a") as code:
        code.write(more)
    return to


NEWER = """
def record_eviction(self, policy, reason, *, tier=None): raise AssertionError
def observe_ages(self, ages): raise AssertionError
def time_warmup(self, engine): raise AssertionError
def mark_source_stale(self, source): raise AssertionError
def record_nixl_receive(self, agent, result): raise AssertionError
def record_metadata_failure(self, policy, reason=None): raise AssertionError
for function in (record_eviction, observe_ages, time_warmup, mark_source_stale,
                 record_nixl_receive, record_metadata_failure):
    setattr(MetricsCollector, function.__name__, function)
"""


def test_nothing_that_a_newer_client_records_is_lost(program, tmp_path: Path) -> None:
    path = other(Path(program.path), tmp_path / "newer", "0.8.1rc2", NEWER)
    process = program.run(
        USES
        + """
metrics.record_eviction("random", "old", tier=2)
metrics.observe_ages(ages=[1, 2.5])
with metrics.time_warmup("vllm"): pass
metrics.mark_source_stale("a")
metrics.record_nixl_receive("agent", "complete")  # its parameters have another order now
metrics.record_metadata_failure("random", reason="gone")
""",
        PYTHONPATH=os.pathsep.join([str(support.ROOT / "emitter/mx_activate/site"), str(path)]),
    )
    assert process.error_output == ""
    assert program.log.names()[: len(events_of(program))] == events_of(program)
    calls = program.log.events("recorder_called")
    assert [(call["recorder"], call["args"], call["kwargs"]) for call in calls] == [
        ("record_eviction", ["random", "old"], {"tier": 2}),
        ("observe_ages", [], {"ages": [1, 2.5]}),
        ("time_warmup", ["vllm"], {}),
        ("mark_source_stale", ["a"], {}),
        ("record_nixl_receive", ["agent", "complete"], {}),
    ]
    assert calls[2]["seconds"] > 0
    (missed,) = program.log.events("metadata_lookup_failed")
    assert (missed["policy"], missed["reason"]) == ("random", "gone")


@pytest.mark.parametrize(
    ("version", "more", "words"),
    [
        ("0.5.9", "", "0.5.9"),
        ("1.0.0", "", "1.0.0"),
        ("9.9.9", "", "9.9.9"),
        ("unknown", "", "unknown"),
        ("0.7.1", "del MetricsCollector._try_bind", "_try_bind"),
        ("0.7.1", "del MetricsCollector.record_attempt", "record_attempt"),
        ("0.7.1", "del push_metrics_if_enabled", "push_metrics_if_enabled"),
        ("0.7.1", "metrics = None", "another shape"),
    ],
)
def test_an_unknown_kind_of_client_is_left_untouched(
    version: str, more: str, words: str, program, tmp_path: Path
) -> None:
    path = other(Path(program.path), tmp_path / "other", version, f"\n{more}\n")
    process = program.run(
        """
from mx_emitter.modelexpress import install
install()
import modelexpress.metrics as client
before = dict(vars(client.metrics)) if client.metrics else None
assert install() is install() is False
assert client.metrics is None or vars(client.metrics) == before
""",
        PYTHONPATH=str(path),
    )
    (line,) = process.error_output.splitlines()
    assert words in line
    assert not program.directory.exists()


def test_install_without_a_client_returns_false(spawn: support.Spawner) -> None:
    done = spawn.python(
        "-c",
        "from mx_emitter.modelexpress import install; assert install() is True",
        env={"MX_METRICS_ENABLED": "1"},
    )
    assert (done.result(), done.error_output) == (0, "")


def test_a_client_that_has_no_metrics(spawn: support.Spawner, tmp_path: Path) -> None:
    (tmp_path / "modelexpress").mkdir()
    (tmp_path / "modelexpress" / "__init__.py").touch()
    done = spawn.python(
        "-c",
        "import modelexpress; from mx_emitter.modelexpress import install as i; assert not i()",
        env={"MX_METRICS_ENABLED": "1", "PYTHONPATH": str(tmp_path)},
    )
    assert done.result() == 0
    assert done.error_output.count("\n") == 1
