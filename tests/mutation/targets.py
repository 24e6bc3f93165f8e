"""The modules that are mutated, each with the tests that are to notice."""

from __future__ import annotations

_CORE = ("tests/unit/mx_exporter/core", "tests/unit/mx_exporter/exposition")

#: ``core.builtin`` is a table: what is in it is held by the golden pages and the documentation.
_CORE_MODULES = (
    *("catalog", "decode", "exact_sum", "fold", "handlers", "ledger", "lines", "load_tracker"),
    *("reducers", "series", "series_table", "snapshot_codec", "snapshot_content"),
    *("snapshot_seal", "state"),
)

_FOLLOWER = tuple(
    f"tests/unit/mx_exporter/directory/test_{name}.py"
    for name in ("follower", "follower_model", "settling", "segments", "maintenance", "compaction")
)
_FOLLOWER_MODULES = ("follower", "reading", "scan", "segments", "settling")
_STREAM = (
    "tests/unit/mx_emitter/log",
    "tests/unit/mx_emitter/test_logger.py",
    "tests/unit/mx_emitter/test_timers.py",
    "tests/unit/mx_emitter/commands/test_reset.py",
)

#: Name of a module -> files and folders of tests.
TARGETS: dict[str, tuple[str, ...]] = {
    **{f"mx_exporter.core.{module}": _CORE for module in _CORE_MODULES},
    **{f"mx_exporter.directory.{module}": _FOLLOWER for module in _FOLLOWER_MODULES},
    **{f"mx_emitter.log.{module}": _STREAM for module in ("segment", "stream")},
}
