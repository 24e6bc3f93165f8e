"""``mx-metrics run``: an engine and its exporter in one container.

There are three processes, so that a fault of one leaves the others alone. The supervisor is small:
it starts the others, passes signals on and reaps, and it has one thread, so that it may fork at
any time. The engine is its child, in the same process group, so that a terminal's keys reach it as
they would without the supervisor. The exporter is the other child, in a group of its own; when it
fails it is started again, later each time. Signals are blocked and taken one by one, so that none
is lost or comes at a bad moment.
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from mx_activate import with_site
from mx_activate.become import NOT_FOUND, NOT_RUNNABLE, become

from ..config import DESTINATIONS, Settings
from ..directory.footprint import Footprint
from ..errors import MxError
from ..log_setup import log_to_stderr

logger = logging.getLogger(__name__)

#: Seconds that shipping and pushing the rest may take, once the engine has ended.
END_SECONDS = 5.0

#: Seconds after which an exporter that failed is started again: the first number, doubled each time
#: up to the second; the first again after an exporter that lived for longer than the second.
RESTART_SECONDS = (1.0, 300.0)

#: Seconds that the reset of a directory may take.
RESET_SECONDS = 10.0

#: Signals that are not passed on: faults of this process, and those that cannot be caught.
_OWN = {
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP),
    *(signal.SIGABRT, signal.SIGSYS, signal.SIGKILL, signal.SIGSTOP),
}
_TAKEN = signal.valid_signals() - _OWN

#: Signals by which a terminal stops a process group.
_STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}

#: Said at the end of an engine that left nothing.
_NOTHING = (
    "the engine logged nothing into %s: as a rule the Python that it runs in has no mx-metrics, or "
    "it loaded no model, or it was started in a way that ignores PYTHONPATH; put `python3 -m "
    "mx_emitter` in the command's place to see"
)

_PR_SET_PDEATHSIG = 1


def run(
    settings: Settings,
    command: Sequence[str],
    *,
    reset: bool = False,
    warnings: Iterable[str] = (),
) -> int:
    """Run ``command`` with metrics on; return its exit status, 128+n when signal n ended it.

    127: there is no such command; 126: it cannot be run.

    :param reset: remove what earlier runs left in the directory.
    :param warnings: warnings about the settings, for the log.
    :raises MxError: the command could not be started.
    """
    log_to_stderr("mx-metrics ")
    for warning in warnings:
        logger.warning("%s", warning)
    destination = settings.destination
    endpoint = settings.endpoint if destination is None else settings.asked_endpoint
    if endpoint is None:
        settings = dataclasses.replace(settings, listen=None, port=0)
    elif destination is not None:
        logger.error(
            "nothing will be pushed: both a port (%s) and %s are set, and the port is served; "
            "unset one of them",
            endpoint,
            DESTINATIONS[destination],
        )
        settings = settings.without_destination()
    environ = _environment(settings)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, children would end without a status
    given = signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN)
    try:
        _prepare(settings, environ, reset=reset)
        return _Supervisor(settings, command, environ, given).run()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, given)


def _environment(settings: Settings) -> dict[str, str]:
    """The engine's environment: metrics on, and the directory as an absolute path.

    ``with_site`` makes the published client's recorders log too, in each Python that imports them.
    """
    environ = with_site({**os.environ, "MX_METRICS_ENABLED": "1"})
    # Once named, the default directory would be used whoever it belongs to.
    if settings.directory.objection() is None:
        environ["MX_METRICS_DIR"] = os.path.abspath(settings.directory.path)
    return environ


def _prepare(settings: Settings, environ: Mapping[str, str], *, reset: bool) -> None:
    """Make the directory, and remove what earlier runs left if that is wanted. Never raises."""
    directory = settings.directory
    objection = directory.objection()
    if objection is not None:
        logger.error("%s is left alone: it %s", directory.path, objection)
        return
    try:
        os.makedirs(directory.path, 0o755 if directory.named else 0o700, exist_ok=True)
        if reset:
            _reset(environ)
    except Exception as error:  # noqa: BLE001 - the engine must start whatever it was
        logger.error("%s could not be prepared: %s", directory.path, error)


def _reset(environ: Mapping[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mx_emitter", "reset"],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=2,  # standard output belongs to the engine
        timeout=RESET_SECONDS,
        check=False,
    )
    if done.returncode:
        logger.warning(
            "what earlier runs left was not removed (exit status %d); going on with it",
            done.returncode,
        )


class _Supervisor:
    """Starts the engine and the exporter, and sees to their ends.

    :param given: the signal mask that children start with.
    """

    def __init__(
        self,
        settings: Settings,
        command: Sequence[str],
        environ: Mapping[str, str],
        given: set[int | signal.Signals],
    ) -> None:
        self._settings = settings
        self._command = command
        self._environ = environ
        self._given = given
        self._engine = 0
        self._exporter = 0
        self._push = 0
        self._started = 0.0
        self._pause = RESTART_SECONDS[0]
        #: When to start the exporter; infinity while it runs.
        self._due = 0.0

    def run(self) -> int:
        """Start both, wait for the engine's end, then let the exporter ship the rest; return the
        engine's exit status."""
        before = Footprint.of(self._settings.directory)
        self._start_exporter()
        try:
            self._engine = self._fork(lambda: _become(self._command, self._environ))
        except OSError as error:
            raise MxError(f"cannot start {self._command[0]}: {error.strerror}") from error
        status = self._wait_for_engine()
        after = Footprint.of(self._settings.directory)
        self._finish()
        code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if after == before and code not in (NOT_RUNNABLE, NOT_FOUND):
            logger.warning(_NOTHING, self._settings.directory.path)
        return code

    def _wait_for_engine(self) -> int:
        while True:
            signal_ = _next_signal(
                None if self._due == float("inf") else self._due - time.monotonic()
            )
            ended: int | None = None
            if signal_ is None:
                self._start_exporter()
            elif signal_.si_signo != signal.SIGCHLD:
                self._pass_on(signal_)
            for pid, status in _reap():
                if pid == self._engine:
                    ended = status
                elif pid == self._exporter:
                    self._exporter_ended(status)
            if ended is not None:
                return ended

    def _pass_on(self, signal_: signal.struct_siginfo) -> None:
        """Give the engine a signal, unless it has it already."""
        number = signal_.si_signo
        # Signals of the kernel come from the terminal, which gives them to the whole process group.
        # Only the first process of its session gets the one that says that the terminal is gone.
        alone = number == signal.SIGHUP and os.getsid(0) == os.getpid()
        if signal_.si_code <= 0 or alone:
            os.kill(self._engine, number)
        if number in _STOPS:
            # The parent must see this process stop where the kernel lets the engine stop.
            os.kill(os.getpid(), number)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            signal.pthread_sigmask(signal.SIG_BLOCK, {number})

    def _start_exporter(self) -> None:
        self._started, self._due = time.monotonic(), float("inf")
        settings = self._settings.without_destination()
        try:
            # It unblocks SIGTERM once it can handle it, so that a short engine's log is shipped.
            self._exporter = self._fork(lambda: _serve(settings), blocked={signal.SIGTERM})
        except OSError as error:
            self._schedule_restart(f"could not be started ({error.strerror})")

    def _exporter_ended(self, status: int) -> None:
        self._exporter = 0
        self._schedule_restart(f"ended ({_describe(status)})")

    def _schedule_restart(self, what: str) -> None:
        first, longest = RESTART_SECONDS
        now = time.monotonic()
        if now - self._started > longest:
            self._pause = first
        self._due = now + self._pause
        logger.error("the exporter %s; it is started again in %g s", what, self._pause)
        self._pause = min(2 * self._pause, longest)

    def _finish(self) -> None:
        """Let the exporter ship the rest, and push; both at once, for `END_SECONDS` at most."""
        deadline = time.monotonic() + END_SECONDS
        if self._exporter:
            os.kill(self._exporter, signal.SIGTERM)
        if self._settings.destination is not None:
            try:
                self._push = self._fork(lambda: _push(self._settings))
            except OSError as error:
                logger.error("nothing was pushed: %s", error.strerror)
        left = {self._exporter: "the exporter", self._push: "the push"}
        left.pop(0, None)
        while left and (seconds := deadline - time.monotonic()) > 0:
            _next_signal(seconds)
            for pid, status in _reap():
                what = left.pop(pid, "")
                if what and status:
                    logger.error("%s failed (%s)", what, _describe(status))
        for pid, what in left.items():
            logger.error("%s took longer than %g s and was ended", what, END_SECONDS)
            os.kill(pid, signal.SIGKILL)

    def _fork(self, child: Callable[[], int], blocked: Collection[int] = ()) -> int:
        """Call ``child`` in a new process, whose exit status is what it returns.

        :param blocked: signals that the child unblocks by itself.
        :raises OSError: no further process may be started.
        """
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, {*self._given, *blocked})
            code = child()
        except MxError as error:
            logger.error("%s", error)
            code = error.exit_code
        except BaseException:
            logger.exception("unexpected")
        finally:
            # Without this, the child would go on as a second supervisor.
            os._exit(code)


# --------------------------------------------------------------------------------------
# What the children do


def _become(command: Sequence[str], environ: Mapping[str, str]) -> int:
    status, why = become(command, environ)
    logger.error("%s", why)
    return status


def _serve(settings: Settings) -> int:
    _detach()
    from .serve import run as serve

    return serve(settings, beside_engine=True)


def _push(settings: Settings) -> int:
    _detach()
    from .push import push

    push(settings)
    return 0


def _detach() -> None:
    """Leave the terminal's process group, and end when the supervisor ends."""
    parent = os.getppid()
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # the supervisor ended before the request
        os._exit(1)


# --------------------------------------------------------------------------------------
# Signals and statuses


def _next_signal(seconds: float | None) -> signal.struct_siginfo | None:
    """The next signal, or None when there was none for so many seconds."""
    if seconds is None:
        return signal.sigwaitinfo(_TAKEN)
    return signal.sigtimedwait(_TAKEN, max(seconds, 0))


def _reap() -> Iterator[tuple[int, int]]:
    """Children that ended, adopted orphans included, with their statuses."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, status


def _describe(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit status {os.WEXITSTATUS(status)}"
