"""The modules that are mutated, each with the tests that are to notice."""

from __future__ import annotations

_CORE = ("tests/unit/mx_exporter/core", "tests/unit/mx_exporter/exposition")

#: ``core.builtin`` is a table: what is in it is held by the golden pages and the documentation.
_CORE_MODULES = (
    *("catalog", "decode", "exact_sum", "fold", "handlers", "ledger", "lines", "load_tracker"),
    *("reducers", "series", "series_table", "snapshot_codec", "state"),
)

#: Name of a module -> files and folders of tests.
TARGETS: dict[str, tuple[str, ...]] = {
    f"mx_exporter.core.{module}": _CORE for module in _CORE_MODULES
}
