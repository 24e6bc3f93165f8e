"""Runs the tests against mutants: which faults of a module would no test notice?

    python -m tests.mutation.run [MODULE ...]        a part of a module's name will do
    python -m tests.mutation.run --again FILE ...    what FILE, an earlier run's output, names

Each mutant runs in a forked process, which imports the mutated module in the module's place and
runs the tests that reach the changed statement, the quickest first, until one fails. A mutant
whose tests all pass has survived: it wants a test, or a line in ``same_program.md`` that says why
it is the same program. The exit code is 1 while there is one, or a line there that fits no mutant.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import hypothesis
import pytest

from tests import support
from tests.mutation.mutants import Mutant, mutants
from tests.mutation.targets import TARGETS

#: Hypothesis with the same few examples each time; what fails is not made smaller.
PROFILE = "mutation"
EXAMPLES = 25

#: Tests that take longer (CPU seconds) are left out: a mutant is to be noticed soon.
LONGEST_TEST = 10.0

#: Limits of one mutant's run: CPU seconds above what its tests take, wall-clock seconds, bytes.
MORE_SECONDS = 5.0
WALL_SECONDS = 120.0
MEMORY_BYTES = 4 << 30

#: What a run of seconds can do without is left out; a mutant's run is mostly the start of pytest.
PYTEST = [
    *("-q", "-x", "-o", "addopts=--import-mode=importlib", "-o", "faulthandler_timeout=0"),
    *("--assert=plain", "-W", "ignore::pytest.PytestAssertRewriteWarning"),
    *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest"),
    *("-p", "no:unraisableexception", "-p", "no:threadexception"),
]

SAME_PROGRAM = Path(__file__).with_name("same_program.md")


class Changed(SourceFileLoader):
    """Imports one module from another source than its file's."""

    def __init__(self, module: str, path: str, source: str) -> None:
        super().__init__(module, path)
        self._source = source

    def get_code(self, _: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)

    def find_spec(self, module: str, *_: object) -> ModuleSpec | None:
        if module != self.name:
            return None
        return importlib.util.spec_from_file_location(module, self.path, loader=self)


class Profile:
    """Hypothesis is told how to behave after ``conftest.py`` did so."""

    def pytest_configure(self) -> None:
        hypothesis.settings.load_profile(PROFILE)


class Reach(Profile):
    """Notes the lines of files that each test runs, and its CPU seconds."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._lines: dict[str, set[int]] = {str(path): set() for path in paths}
        self.imported: dict[str, list[int]] = {}
        self.tests: dict[str, tuple[float, dict[str, list[int]]]] = {}

    def trace(self, frame: FrameType, *_: object) -> Any:
        lines = self._lines.get(frame.f_code.co_filename)
        if lines is None:
            return None
        lines.add(frame.f_lineno)

        def trace_line(frame: FrameType, event: str, _: object) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return trace_line

        return trace_line

    def _give_up(self) -> dict[str, list[int]]:
        found = {path: sorted(lines) for path, lines in self._lines.items() if lines}
        for lines in self._lines.values():
            lines.clear()
        return found

    def pytest_collection_finish(self) -> None:
        self.imported = self._give_up()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        sys.settrace(self.trace)
        try:
            return (yield)
        finally:
            self.tests[item.nodeid] = (time.process_time() - began, self._give_up())


class Chosen(Profile):
    """Runs some of the tests, in their order."""

    def __init__(self, tests: list[str]) -> None:
        self._at = {test: at for at, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._at]
        items.sort(key=lambda item: self._at[item.nodeid])


def in_child(act: Callable[[], int], seconds: float) -> int | None:
    """Exit code of what is done in a forked process; None when it ran into a limit."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            silence = os.open(os.devnull, os.O_RDWR)
            for fd in range(3):
                os.dup2(silence, fd)
            code = act()
        finally:
            os._exit(code)
    end = time.monotonic() + max(WALL_SECONDS, 5 * seconds)
    pause = 0.005
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None
        if time.monotonic() > end:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        time.sleep(pause)


def path_of(module: str) -> Path:
    """The file of a module."""
    root = "emitter" if module.startswith("mx_emitter") else "exporter"
    return support.ROOT / root / (module.replace(".", "/") + ".py")


class Tests:
    """Tests that are to notice, and the lines that each of them reaches.

    :param files: files and folders of tests.
    :param modules: names of the modules to be mutated.
    """

    def __init__(self, files: tuple[str, ...], modules: list[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder, "reach")

            def act() -> int:
                reach = Reach(map(path_of, modules))
                sys.settrace(reach.trace)
                code = int(pytest.main([*PYTEST, *_at_root(files)], plugins=[reach]))
                sys.settrace(None)
                found.write_text(json.dumps([reach.tests, reach.imported, _foreign_modules()]))
                return code

            if in_child(act, 2000) != 0:
                raise SystemExit(f"{' '.join(files)}: a test fails without a fault")
            tests, self._imported, foreign = json.loads(found.read_text())
        self._tests: dict[str, tuple[float, dict[str, list[int]]]] = {
            test: (seconds, lines)
            for test, (seconds, lines) in tests.items()
            if seconds <= LONGEST_TEST
        }
        # The runs to come have the tests in this order.
        if not self._pass(self._in_order(lambda _: True)):
            raise SystemExit(f"{' '.join(files)}: a test fails in another order, without a fault")
        # Imported once, not in each run.
        for module in foreign:
            with suppress(Exception):
                importlib.import_module(module)
        gc.freeze()

    def notice(self, module: str, mutant: Mutant) -> bool:
        """Whether one of them fails with the mutant, or the mutant runs into a limit."""
        path = path_of(module)
        changed = set(range(mutant.lines[0], mutant.lines[1] + 1))
        # What an import runs, every test may notice.
        every = bool(changed & set(self._imported.get(str(path), ())))
        tests = self._in_order(lambda lines: every or bool(changed & set(lines.get(str(path), ()))))
        return bool(tests) and not self._pass(tests, Changed(module, str(path), mutant.source))

    def _in_order(self, wanted: Callable[[dict[str, list[int]]], bool]) -> dict[str, float]:
        """CPU seconds of the tests that reach what is wanted, the quickest first."""
        found = {test: seconds for test, (seconds, lines) in self._tests.items() if wanted(lines)}
        return dict(sorted(found.items(), key=lambda item: item[1]))

    def _pass(self, tests: dict[str, float], changed: Changed | None = None) -> bool:
        def act() -> int:
            if changed is not None:
                sys.meta_path.insert(0, changed)
            files = dict.fromkeys(test.split("::")[0] for test in tests)
            return int(pytest.main([*PYTEST, *_at_root(files)], plugins=[Chosen(list(tests))]))

        return in_child(act, MORE_SECONDS + sum(tests.values())) == 0


def _at_root(files: Iterable[str]) -> list[str]:
    return [str(support.ROOT / file) for file in files]


def _foreign_modules() -> list[str]:
    """Names of the modules that this process has imported, the project's left out."""
    site = str(Path(pytest.__file__).parent.parent)
    return [
        name
        for name, module in list(sys.modules.items())
        if str(getattr(module, "__file__", "")).startswith(site)
    ]


def same_program(module: str) -> list[str]:
    """Names of the mutants of a module that are said to be the same program."""
    section, found = "", []
    for line in SAME_PROGRAM.read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("- ") and section == module:
            found.append(line.removeprefix("- "))
    return found


def run(module: str, tests: Tests, again: set[str] | None) -> int:
    """Run the mutants of a module, of these names only if there are some; return how many survived,
    stale lines included."""
    began = time.monotonic()
    path = path_of(module)
    every = list(mutants(path.read_text()))
    same = same_program(module)
    stale = set(same) - {mutant.name for mutant in every}
    if again is not None:
        every = [mutant for mutant in every if mutant.name in again or mutant.name in same]
    survived = 0
    for mutant in every:
        if mutant.name not in same and not tests.notice(module, mutant):
            survived += 1
            print(f"{path.name}:{mutant.lines[0]} {mutant.name}", flush=True)
    for name in sorted(stale):
        print(f"fits no mutant any more: {name}")
    known = len(same) - len(stale)
    print(
        f"{module}: {len(every)} mutants, {len(every) - known - survived} noticed, "
        f"{known} the same program, {survived} survived ({time.monotonic() - began:.0f} s)",
        flush=True,
    )
    return survived + len(stale)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("module", nargs="*", help="a part of a module's name; all without one")
    parser.add_argument("--again", type=Path, help="only survivors that this output names")
    options = parser.parse_args()
    wanted, again = options.module, None
    if options.again:
        again = {line.partition(" ")[2] for line in options.again.read_text().splitlines()}
    names = [name for name in TARGETS if not wanted or any(part in name for part in wanted)]
    sys.path[:0] = [str(support.ROOT / "exporter"), str(support.ROOT / "emitter")]
    hypothesis.settings.register_profile(
        PROFILE,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    by_tests: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        by_tests.setdefault(TARGETS[name], []).append(name)
    left = 0
    for files, modules in by_tests.items():
        tests = Tests(files, modules)
        left += sum(run(module, tests, again) for module in modules)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
