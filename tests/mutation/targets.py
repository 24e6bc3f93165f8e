"""The modules that are mutated, each with the tests that are to notice."""

from __future__ import annotations

from tests.support import ROOT

_CORE = (
    *("tests/unit/mx_exporter/core", "tests/unit/mx_exporter/exposition"),
    "tests/unit/mx_exporter/tables",  # families of one's own
)

#: ``core.builtin`` is a table: what is in it is held by the golden pages and the documentation.
_CORE_MODULES = sorted(
    path.stem
    for path in (ROOT / "exporter/mx_exporter/core").glob("[!_]*.py")
    if path.stem != "builtin"
)

_DIRECTORY = "tests/unit/mx_exporter/directory/test_{}.py"
_FOLLOWER = tuple(
    _DIRECTORY.format(name)
    for name in ("follower", "follower_model", "settling", "grace", "maintenance", "compaction")
)
_OF_ONE_SEGMENT = ("reading", "scan", "segments")
_EMITTER = "tests/unit/mx_emitter/log"

#: Name of a module -> files and folders of tests.
TARGETS: dict[str, tuple[str, ...]] = {
    **{f"mx_exporter.core.{module}": _CORE for module in _CORE_MODULES},
    **{f"mx_exporter.directory.{name}": (_DIRECTORY.format(name),) for name in _OF_ONE_SEGMENT},
    "mx_exporter.directory.settling": (
        _DIRECTORY.format("settling"),
        _DIRECTORY.format("grace"),
    ),
    "mx_exporter.directory.follower": _FOLLOWER,
    "mx_emitter.log.segment": (f"{_EMITTER}/test_segment.py",),
    "mx_emitter.log.stream": (_EMITTER,),
}
