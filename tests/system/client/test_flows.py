"""The real client's code, driven through loads: its own metrics and ours are equal.

Needs an environment with torch: ``make test-client`` makes it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import mx_exporter
from mx_exporter.loads.why import why
from tests import support
from tests.support import parity
from tests.support.emitting import Log
from tests.support.simulated_loads import in_order

#: One worker runs them all, and begins with them.
pytestmark = pytest.mark.long

PROGRAM = parity.PROGRAMS / "flows.py"
PYTHON = support.ROOT / ".venv-client" / "bin" / "python"
EMITTER = support.ROOT / "emitter"
SITE = EMITTER / "mx_activate" / "site"

#: As in flows.py; a test says that none is missing.
FLOWS = re.findall(r"^@flow\ndef (\w+)", PROGRAM.read_text(), re.MULTILINE)


@pytest.fixture(scope="session")
def python() -> Path:
    """Python of the environment that has torch and the client."""
    if not PYTHON.exists():
        support.leave_out("needs an environment with torch (`make test-client`)")
    return PYTHON


def run(python: Path, to: Path, **env: str) -> support.Process:
    (to / "flows").mkdir(parents=True)
    process = support.Process(
        [python, PROGRAM, to / "flows"],
        to / "process",
        support.clean_environment(MX_METRICS_ENABLED="1", MX_METRICS_SCHEME="flows", **env),
    )
    try:
        assert process.result(limit=300) == 0, process.error_output
    finally:
        process.end()
    return process


@pytest.fixture(scope="session")
def theirs(python: Path, tmp_path_factory: pytest.TempPathFactory) -> support.Process:
    """The flows with the client's own metrics, in its multiprocess mode."""
    return run(python, tmp_path_factory.mktemp("theirs"))


@pytest.fixture(scope="session")
def ours(python: Path, tmp_path_factory: pytest.TempPathFactory) -> support.Process:
    """The flows with ours, activated by the `sitecustomize`."""
    return run(
        python,
        tmp_path_factory.mktemp("ours"),
        PYTHONPATH=os.pathsep.join(map(str, [SITE, EMITTER])),
        MX_METRICS_CAPTURE_LOGS="INFO",
    )


def directory(process: support.Process, flow: str) -> Path:
    return Path(process.args[-1]) / flow  # type: ignore[index]


def log_of(process: support.Process, flow: str) -> Log:
    return Log(directory(process, flow))


@pytest.mark.parametrize("flow", FLOWS)
def test_both_sides_count_the_same(
    flow: str, theirs: support.Process, ours: support.Process
) -> None:
    expected, found = parity.both(directory(theirs, flow), directory(ours, flow))
    assert len({name for name, _ in expected}) > 1
    parity.check(expected, found, parity.magnitudes(directory(ours, flow)))
    assert {path.suffix for path in directory(ours, flow).iterdir()} == {".jsonl"}
    log_of(ours, flow).check_books()


def test_every_flow_ran_and_they_meet_all_there_is(ours: support.Process) -> None:
    assert {path.name for path in directory(ours, "x").parent.iterdir()} == set(FLOWS)
    met: dict[str, set[Any]] = {}
    for flow in FLOWS:
        for event in log_of(ours, flow).events():
            for field in ("result", "kind", "outcome", "phase", "stage", "step"):
                if field in event:
                    met.setdefault(f"{event['event']}.{field}", set()).add(event[field])
    assert met["source_attempted.result"] == {
        "success", "metadata_miss", "transfer_retry", "transfer_fallback",
    }  # fmt: skip
    assert met["sources_listed.result"] == {"ok", "empty", "error"}
    assert met["nixl_failed.kind"] == {"timeout", "status_error"}
    assert met["nixl_received.result"] == {"complete", "partial", "empty", "rejected"}
    assert met["transfer_finished.outcome"] == {"success", "retry", "fallback"}
    assert met["load_finished.outcome"] == {"success", "error"}
    assert met["candidates_counted.stage"] == {"listed", "rank_matched", "accelerator_matched"}
    assert met["artifact_install_step_finished.step"] == {"validate", "extract"}
    assert met["source_attempt_phase_finished.phase"] == {
        "metadata", "prepare", "register", "handshake", "receive", "finalize", "release",
    }  # fmt: skip


def test_what_the_client_prints_and_logs_is_what_it_was(
    theirs: support.Process, ours: support.Process
) -> None:
    assert ours.error_output == theirs.error_output
    assert "Trying next candidate" in ours.error_output
    assert ours.output == theirs.output
    assert "the engine shows this" in ours.output


def test_the_log_holds_the_clients_reasons(ours: support.Process) -> None:
    messages = [e["message"] for e in log_of(ours, "retry_then_success").events("log_recorded")]
    assert any("https://peer/ went away" in message for message in messages)
    # The rate at which bytes came is logged at INFO, which nobody lets through there.
    engines = [e["message"] for e in log_of(ours, "engines_logging").events("log_recorded")]
    assert any("No RDMA source available" in message for message in engines)
    assert any("Trying strategy: default" in message for message in engines)
    assert "secret" not in str(messages)


_SECONDS = r"\d+\.\d s"
_ALONE = f"{_SECONDS} without a peer"
_OUTSIDE = f"{_SECONDS} outside of all phases"
_MISSED = "the metadata of a source could not be had"
_CLOCK = "the clock was set meanwhile"
#: What is told of the loads of a flow: sentences, in order. The flows have a clock of their own for
#: durations, which passes with each look at it.
STORIES = {
    "success": [[rf"w0 {_SECONDS}", _ALONE, _CLOCK]],
    "retry_then_success": [
        [rf"w\d failed \({_SECONDS}\)", rf"then w\d {_SECONDS}", _ALONE, _CLOCK]
    ],
    "fallback": [[rf"w\d, w\d, w\d failed \({_SECONDS}\)", _ALONE, _CLOCK]],
    "metadata_that_raises": [[_MISSED, _ALONE, _OUTSIDE, _CLOCK]],
    "metadata_that_is_none": [[_MISSED, _ALONE, _OUTSIDE, _CLOCK]],
    "accelerator_mismatch": [
        [rf"w2 {_SECONDS}", _ALONE, _CLOCK],
        [rf"a source given up \({_SECONDS}\)", _ALONE, _OUTSIDE, _CLOCK],
    ],
    "empty_list": [
        ["no source was listed", _ALONE, _OUTSIDE, _CLOCK],
        ["no source fits", _ALONE, _OUTSIDE, _CLOCK],
    ],
    "list_error": [[r"the sources could not be listed \(error\)", _ALONE, _OUTSIDE, _CLOCK]],
    "keyboard_interrupt": [
        [rf"KeyboardInterrupt after {_SECONDS} in finalize from w0", _ALONE, _CLOCK],
        [rf"KeyboardInterrupt after {_SECONDS} in metadata", _ALONE, _OUTSIDE, _CLOCK],
    ],
    "transfer_that_times_out": [[rf"w\d, w\d timed out \({_SECONDS}\)", _ALONE, _CLOCK]],
    "transfer_that_fails": [[rf"w0 failed \({_SECONDS}\)", _ALONE, _CLOCK]],
}


@pytest.mark.parametrize("flow", STORIES)
def test_a_load_tells_its_story(flow: str, ours: support.Process) -> None:
    loads = in_order(mx_exporter.timeline(str(directory(ours, flow)), jobs=1))
    for load, sentences in zip(loads, STORIES[flow], strict=True):
        told = why(load).split("; ")
        assert len(told) == len(sentences), told
        for one, expected in zip(told, sentences, strict=True):
            assert re.fullmatch(expected, one), told


def test_what_the_client_did_is_read_back(ours: support.Process) -> None:
    """A peer that went away, and the one that gave the weights."""
    (load,) = mx_exporter.timeline(str(directory(ours, "retry_then_success")), jobs=1)
    first, second = load.attempts
    phases = ["metadata", "prepare", "register", "handshake", "receive", "finalize", "release"]
    assert [load.outcome, first.result, second.result] == [
        "success", "transfer_retry", "success",
    ]  # fmt: skip
    assert first.peer != second.peer
    assert sorted(span.name for span in first.phases) == sorted(phases)
    assert sorted(span.name for span in second.phases) == sorted(phases)
    assert (first.error_type, first.error) == ("RuntimeError", "https://peer/ went away")
    (looked,) = load.selections
    assert (looked.result, looked.counts["listed"]) == ("ok", 3.0)
    assert {first.peer, second.peer} < {"w0", "w1", "w2"}
    assert ["Trying next candidate" in (record.message or "") for record in load.records] == [True]


@pytest.mark.parametrize(
    "flow", ["success", "retry_then_success", "fallback", "keyboard_interrupt"]
)
def test_all_events_of_a_load_have_its_id(flow: str, ours: support.Process) -> None:
    events = log_of(ours, flow).events()
    began = [n for n, event in enumerate(events) if event["event"] == "load_started"]
    ended = [n for n, event in enumerate(events) if event["event"] == "load_finished"]
    for first, last in zip(began, ended, strict=True):
        ids = {event.get("load_id") for event in events[first : last + 1]}
        assert len(ids) == 1
        assert None not in ids
    if flow == "keyboard_interrupt":
        assert events[ended[0]]["error_type"] == "KeyboardInterrupt"


def test_threads_of_the_clients_pool_are_part_of_their_load(ours: support.Process) -> None:
    log = log_of(ours, "chunks_in_threads")
    (started,) = log.events("load_started")
    failures = log.events("nixl_failed")
    assert [event["load_id"] for event in failures] == [started["load_id"]] * 3


def test_events_name_the_clients_span(ours: support.Process) -> None:
    log = log_of(ours, "traced")
    within = log.events("source_attempted")
    (started,) = log.events("load_started")
    assert within[0]["trace_id"] == started["trace_id"]
    assert re.fullmatch("[0-9a-f]{32}", started["trace_id"])
    # The client opens a span of its own for the chain of strategies.
    assert within[0]["span_id"] != started["span_id"]
    assert re.fullmatch("[0-9a-f]{16}", within[0]["span_id"])


# --------------------------------------------------------------------------------------
# The whole client, and OpenTelemetry's own sitecustomize

CHILD = (
    "import modelexpress; from modelexpress.metrics import enable_metrics, metrics\n"
    "assert enable_metrics(); metrics.record_attempt('random', 'success')"
)


def test_beside_opentelemetrys_instrument_command(
    python: Path, spawn: support.Spawner, tmp_path: Path
) -> None:
    """Ours runs, theirs runs, and so it is in a child, though theirs puts itself first there."""
    engine = tmp_path / "engine.py"
    engine.write_text(
        "import os, subprocess, sys\n"
        "assert 'opentelemetry.instrumentation.auto_instrumentation' in sys.modules\n"
        f"code = {CHILD!r}\n"
        "exec(code)\n"
        "assert subprocess.run([sys.executable, '-c', code]).returncode == 0\n"
    )
    instrument = python.with_name("opentelemetry-instrument")
    run = [python, "-m", "mx_emitter", "run", "--"]
    env = {
        "MX_METRICS_ENABLED": "1",
        "MX_METRICS_DIR": str(tmp_path / "log"),
        "PYTHONPATH": str(EMITTER),
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
    }
    done = spawn(instrument, *run, python, engine, env=env, cwd=tmp_path)
    assert done.result() == 0, done.error_output
    names = Log(tmp_path / "log").names()
    assert names == ["source_attempted"] * 2
