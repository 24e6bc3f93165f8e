"""How the tests are run, hygiene for each of them, and the real parts they use."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import support
from tests.support import basics, bring_client
from tests.support.shared import once

# Tests start hundreds of processes: where Python keeps nothing that it compiled, each would compile
# all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

#: Whether a test that is left out is a failure, as CI asks for.
ALL = pytest.StashKey[bool]()

#: Processes that keep the machine busy during the run.
BUSY = pytest.StashKey[list[subprocess.Popen[bytes]]]()

# How many examples hypothesis tries: `--hypothesis-profile` names another profile. A test that
# wants more or fewer takes a multiple. A busy machine may be slow at anything: none has a limit.
hypothesis.settings.register_profile(
    "thorough", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
for profile, examples in {"suite": 30, "few": 10}.items():
    hypothesis.settings.register_profile(
        profile, hypothesis.settings.get_profile("thorough"), max_examples=examples
    )
hypothesis.settings.load_profile("suite")

#: Modules whose tests share something costly: one worker runs all tests of such a module.
TOGETHER = (
    "tests/deploy/test_dashboard_live.py",
    "tests/deploy/test_image.py",
    "tests/system/browser/test_pages.py",
    "tests/system/client/test_flows.py",
)

#: A busy loop that ends with the process that started it.
LOOP = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(10**6))"


# --------------------------------------------------------------------------------------
# The run: its workers, its order, its environment


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.stash[ALL] = config.workerinput["all"]
    else:
        config.stash[ALL] = os.environ.get("MX_TEST_ALL", "") not in ("", "0")
        loops = 0 if config.option.collectonly else int(os.environ.get("MX_TEST_BUSY") or 0)
        config.stash[BUSY] = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(loops)]
    for name in [name for name in os.environ if support.is_products(name)]:
        del os.environ[name]


def pytest_unconfigure(config: pytest.Config) -> None:
    for process in config.stash.get(BUSY, []):
        process.kill()
        process.wait()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three more than there are cores, since tests wait more than they compute. None for tests that
    are asked for by name: they run in this process, in their order."""
    by_name = any("::" in each or each.endswith(".py") for each in config.args)
    return 0 if by_name or config.option.keyword else len(os.sched_getaffinity(0)) + 3


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each worker gets one test after the other, or all of a module of :data:`TOGETHER`."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            return module if module in TOGETHER else nodeid

    return Scheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """The environment of a worker has none of the variables any more."""
    node.workerinput["all"] = node.config.stash[ALL]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that take long start first, so that no worker is still busy with one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


# --------------------------------------------------------------------------------------
# Tests that were left out


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _refuse_to_leave_out(
    config: pytest.Config, report: pytest.TestReport | pytest.CollectReport
) -> None:
    if report.skipped and config.stash[ALL] and not hasattr(report, "wasxfail"):
        report.longrepr = f"left out, and MX_TEST_ALL=1 asks for every test: {_reason(report)}"
        report.outcome = "failed"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    _refuse_to_leave_out(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    report = yield
    _refuse_to_leave_out(collector.config, report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section(f"left out: {len(skipped)}")
        for report in skipped:
            terminalreporter.line(f"{report.nodeid}: {_reason(report)}")


# --------------------------------------------------------------------------------------
# Hygiene


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """No test leaves a variable behind."""
    before = dict(os.environ)
    yield
    if dict(os.environ) != before:
        os.environ.clear()
        os.environ.update(before)


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the listing's own descriptor
            continue
    return found


def _children() -> dict[int, str]:
    found = {}
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as listing:
                pids = listing.read().split()
        except OSError:  # the thread has just ended
            continue
        for pid in map(int, pids):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
                    found[pid] = cmdline.read().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
    return found


def _multiprocessings_own(fds: dict[int, str], pids: dict[int, str]) -> None:
    """Take out what multiprocessing keeps for the life of the interpreter."""
    for pid, command in list(pids.items()):
        if "multiprocessing.resource_tracker" in command or "multiprocessing.forkserver" in command:
            del pids[pid]
    tracker = sys.modules.get("multiprocessing.resource_tracker")
    if tracker:
        fds.pop(tracker._resource_tracker._fd, None)


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """No test leaves a thread, a descriptor or a process behind."""
    threads, fds, pids = _threads(), _descriptors(), _children()
    yield

    def left() -> tuple[list[str], dict[int, str], dict[int, str]]:
        new_fds = {fd: what for fd, what in _descriptors().items() if fds.get(fd) != what}
        new_pids = {pid: what for pid, what in _children().items() if pid not in pids}
        _multiprocessings_own(new_fds, new_pids)
        return [thread.name for thread in _threads() - threads], new_fds, new_pids

    def nothing_left() -> bool:
        if not any(left()):
            return True
        gc.collect()
        return not any(left())

    try:
        support.wait_until(nothing_left, limit=basics.LEFT_BEHIND_SECONDS)
    except AssertionError:
        names, new_fds, new_pids = left()
        for pid in new_pids:
            os.kill(pid, signal.SIGKILL)
        pytest.fail(f"left behind: threads {names}, descriptors {new_fds}, processes {new_pids}")


# --------------------------------------------------------------------------------------
# Real parts


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[support.Spawner]:
    """Start real processes with a clean environment; they end with the test."""
    spawner = support.Spawner(tmp_path / "processes")
    try:
        yield spawner
    finally:
        spawner.end()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    libc = ctypes.CDLL(None, use_errno=True)
    place = tmp_path / "disk"
    place.mkdir()
    if libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, b"size=256k") != 0:
        support.leave_out(f"may not mount: {os.strerror(ctypes.get_errno())}")
    try:
        yield place
    finally:
        libc.umount2(os.fsencode(place), 2)


@pytest.fixture(scope="session")
def promtool() -> str:
    """Path of Prometheus's promtool."""
    return support.tool("promtool")


@pytest.fixture(scope="session")
def prometheus() -> str:
    """Path of a real Prometheus."""
    return support.tool("prometheus")


@pytest.fixture(scope="session")
def pushgateway() -> str:
    """Path of a real Pushgateway."""
    return support.tool("prometheus-pushgateway")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built once a run."""

    def build(folder: Path) -> None:
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
            cwd=support.ROOT,
            check=True,
            capture_output=True,
            env=support.clean_environment(),
        )

    (built,) = once(tmp_path_factory, "wheel", build).glob("*.whl")
    return built


@pytest.fixture(scope="session")
def bare_venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a fresh environment that has the wheel and its two dependencies, no extra."""

    def build(folder: Path) -> None:
        venv.create(folder / "venv", with_pip=True)
        subprocess.run(
            [
                *(folder / "venv" / "bin" / "python", "-m", "pip", "install"),
                *("--quiet", "--disable-pip-version-check", wheel),
            ],
            check=True,
            stdin=subprocess.DEVNULL,
            env=support.clean_environment(),
        )

    return once(tmp_path_factory, "bare-venv", build) / "venv" / "bin" / "python"


@pytest.fixture(scope="session", params=["0.6.0", "0.7.0"])
def client(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """A release of the client: its version, and the folder it is installed in."""
    version: str = request.param
    try:
        return version, bring_client.bring(version)
    except RuntimeError as error:
        support.leave_out(str(error))
