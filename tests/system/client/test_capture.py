"""``MX_METRICS_CAPTURE_LOGS``: the client's own log records become events."""

from __future__ import annotations

import logging
from typing import Any

import pytest

SETUP = """
import logging, sys
from mx_emitter.modelexpress import install
assert install()
from modelexpress.metrics import enable_metrics, metrics
assert enable_metrics()
log = logging.getLogger("modelexpress.strategy_rdma")
"""


def records(program: Any) -> list[dict[str, Any]]:
    return program.log.events("log_recorded")


def test_it_is_off_by_default(program: Any) -> None:
    process = program.run(SETUP + "log.warning('lost'); assert not log.parent.handlers")
    assert program.log.names() == []
    assert process.error_output == "lost\n"


@pytest.mark.parametrize("level", ["WARNING", "info"])
def test_records_become_events(level: str, program: Any) -> None:
    process = program.run(
        SETUP
        + """
logging.basicConfig(level=logging.DEBUG, format="%(message)s")
log.debug("1"); log.info("2 %s", "two"); log.warning("3"); log.critical("4")
logging.getLogger("modelexpress_rl.x").error("5")
logging.getLogger("other").error("6")
logging.getLogger("modelexpressing").error("7")
""",
        MX_METRICS_CAPTURE_LOGS=level,
    )
    found = [(event["level"], event["logger"], event["message"]) for event in records(program)]
    rdma = "modelexpress.strategy_rdma"
    expected = [
        ("info", rdma, "2 two"),
        ("warning", rdma, "3"),
        ("critical", rdma, "4"),
        ("error", "modelexpress_rl.x", "5"),
    ]
    assert found == expected[level == "WARNING" :]
    # What the application shows is what it would show without us.
    assert process.error_output.split() == ["1", "2", "two", "3", "4", "5", "6", "7"]


def test_levels_and_what_nobody_handles_stay_as_they_are(program: Any) -> None:
    """No logging is set up at all: Python prints warnings by itself, once each."""
    process = program.run(
        SETUP
        + """
before = log.getEffectiveLevel()
log.info("hidden"); log.warning("shown")
log.parent.setLevel(logging.INFO); log.info("logged")
""",
        MX_METRICS_CAPTURE_LOGS="INFO",
    )
    assert [event["message"] for event in records(program)] == ["shown", "logged"]
    assert process.error_output == "shown\n"


def test_the_engines_handlers_still_get_to_the_client(program: Any) -> None:
    """The client gives its loggers those of the engine while they have none: ours is none."""
    process = program.run(
        """
import logging, sys, types
import modelexpress
def configure(name):  # what 0.7.0 does, in the place where it does it
    namespace = logging.getLogger("modelexpress")
    if namespace.handlers: return
    for handler in logging.getLogger(name).handlers: namespace.addHandler(handler)
    namespace.setLevel(logging.INFO)
modelexpress._configure_engine_logging = configure
"""
        + SETUP
        + """
engine = logging.getLogger("vllm")
engine.addHandler(logging.StreamHandler(sys.stderr))
modelexpress._configure_engine_logging("vllm")
modelexpress._configure_engine_logging("vllm")
log.info("both")
""",
        MX_METRICS_CAPTURE_LOGS="INFO",
    )
    assert process.error_output == "both\n"
    assert [event["message"] for event in records(program)] == ["both"]


def test_messages_are_bounded_and_tell_no_secrets(program: Any) -> None:
    program.run(
        SETUP
        + """
log.warning("GET %s failed", "https://user:word@host/path?token=abc&x=1")
log.warning("x" * 5000)
log.warning("%d tensors", "many")
class Broken:
    def __str__(self): raise ValueError
log.warning("%s", Broken())
log.warning(Broken())
log.warning("lone \\udcff")
try: raise RuntimeError("at http://u:p@h/?q=1")
except RuntimeError: log.exception("failed")
""",
        MX_METRICS_CAPTURE_LOGS="WARNING",
    )
    found = records(program)
    assert found[0]["message"] == "GET https://host/path failed"
    assert found[1]["message"] == "x" * 2000
    assert found[2]["message"] == "%d tensors"
    assert found[3]["message"] == "%s"
    assert found[4]["message"] == "<unprintable Broken>"
    assert found[5]["message"] == "lone \\udcff"
    assert (found[6]["message"], found[6]["error_type"]) == ("failed", "RuntimeError")
    assert found[6]["error"] == "at http://h/"
    assert len(found) == 7


def test_records_logged_while_capturing_are_not_captured(program: Any) -> None:
    process = program.run(
        SETUP
        + """
logging.basicConfig(format="%(message)s")
class Chatty:
    def __str__(self): log.warning("inner"); return "outer"
log.warning("%s", Chatty())
""",
        MX_METRICS_CAPTURE_LOGS="WARNING",
    )
    # The second comes of the application's own handler, when that formats the first.
    assert [event["message"] for event in records(program)] == ["outer", "inner"]
    assert process.error_output.split()[-1] == "outer"


def test_a_log_that_cannot_be_written_hurts_nobody(program: Any) -> None:
    program.directory.write_text("no directory")
    program.run(SETUP + "log.warning('x'); log.error('y')", MX_METRICS_CAPTURE_LOGS="INFO")


def test_an_engine_that_calls_us_itself_gets_them_too(program: Any) -> None:
    program.run(
        """
import logging, mx_emitter
assert mx_emitter.enable_metrics()
logging.getLogger("modelexpress.x").warning("y")
""",
        MX_METRICS_CAPTURE_LOGS="WARNING",
    )
    assert [event["message"] for event in records(program)] == ["y"]


def test_a_bad_value_is_logged_once(program: Any) -> None:
    process = program.run(SETUP + "log.warning('x')", MX_METRICS_CAPTURE_LOGS="DEBUG")
    assert records(program) == []
    assert process.error_output.count("MX_METRICS_CAPTURE_LOGS='debug'") == 1


def test_captured_records_have_the_id_of_their_load(program: Any) -> None:
    if program.version == "0.6.0":
        return  # it has no loads
    program.run(
        SETUP
        + """
log.warning("before")
with metrics.time_load("vllm", "m", "main"): log.warning("within")
""",
        MX_METRICS_CAPTURE_LOGS="WARNING",
    )
    before, within = records(program)
    assert "load_id" not in before
    assert within["load_id"] == program.log.events("load_started")[0]["load_id"]


def test_levels_of_the_standard_library_are_named() -> None:
    from mx_emitter.modelexpress.log_capture import _level

    found = [_level(n) for n in (5, logging.INFO, 25, logging.WARNING, 45, 60)]
    assert found == ["debug", "info", "info", "warning", "error", "critical"]
