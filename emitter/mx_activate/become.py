"""Becoming a command, for `run` of either command line, and why that could not be."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence

#: Statuses that a shell gives where a command cannot be run, and where there is none.
NOT_RUNNABLE, NOT_FOUND = 126, 127

#: The first line of a script is read so far, as the kernel does.
_FIRST_LINE = 256


def become(command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """Execute ``command`` in place of this process.

    It returns only where that cannot be: the exit status that a shell would give, and a line that
    says why.
    """
    name = command[0]
    if not name.strip():
        return NOT_FOUND, (
            f"cannot run {name!r}: the command is empty; is the variable that should name it set?"
        )
    # Python ignores these, and that would be inherited.
    ignored = {number: signal.getsignal(number) for number in (signal.SIGPIPE, signal.SIGXFSZ)}
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(name, list(command), environ)
    except (OSError, ValueError) as error:
        status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
        why = getattr(error, "strerror", None) or str(error)
        more = _cause(error, _found(name, environ))
        return status, f"cannot run {name}: {why}" + (f": {more}" if more else "")
    finally:
        for number, handler in ignored.items():
            signal.signal(number, handler)


def _found(name: str, environ: Mapping[str, str]) -> str | None:
    """The file that ``name`` names, by the path where it has no slash; None where there is none."""
    places = [""] if os.sep in name else os.get_exec_path(dict(environ))
    paths = [os.path.join(place, name) for place in places]
    there = [path for path in paths if os.path.exists(path)]
    return next((path for path in there if os.access(path, os.X_OK)), there[0] if there else None)


def _cause(error: Exception, path: str | None) -> str:
    """What the system's words leave open."""
    number = getattr(error, "errno", None)
    if path is None:
        return ""
    if os.path.isdir(path):
        return f"{path} is a directory"
    interpreter = _interpreter(path)
    if number == errno.ENOENT:
        if interpreter is None:
            return f"the program that loads {path} is missing; it was built for another system"
        ending = ", for its lines end in CR LF" if interpreter.endswith("\r") else ""
        return f"the interpreter of {path}, {interpreter!r}, is missing{ending}"
    if number == errno.ENOEXEC:
        return f"{path} is no program of this machine, and names no interpreter after #!"
    if number == errno.EACCES:
        if not os.access(path, os.X_OK):
            return f"{path} is not executable; chmod +x makes it so"
        if interpreter is not None:
            return f"the interpreter of {path}, {interpreter!r}, may not be executed"
    return ""


def _interpreter(path: str) -> str | None:
    """What a script names after ``#!``, without its arguments; None for all else."""
    try:
        with open(path, "rb") as file:
            line = file.read(_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return None
    if not line.startswith(b"#!"):
        return None
    words = line[2:].strip(b" \t").replace(b"\t", b" ").split(b" ")
    return os.fsdecode(words[0])
