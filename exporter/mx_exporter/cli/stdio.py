"""Standard output and standard error of the commands that print a result."""

from __future__ import annotations

import errno
import os
import sys

from ..errors import MxError

#: Name of the program, which each of its messages begins with.
PROG = "mx-metrics"

_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def need_stdout() -> None:
    """Make sure that there is a standard output.

    :raises MxError: it was closed before this process started.
    """
    if sys.stdout is None:
        raise MxError("standard output is closed; nothing can be printed")


def put(data: bytes) -> None:
    """Print a result.

    :raises MxError: it cannot be written; the message says why.
    :raises BrokenPipeError: its reader went away.
    """
    need_stdout()
    try:
        sys.stdout.flush()
        rest = memoryview(data)
        while rest:  # an unbuffered one takes as much as there is room for
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon_stdout()
        raise MxError(cannot_write(error)) from None


def cannot_write(error: OSError) -> str:
    """The message about an error in writing standard output."""
    return f"standard output cannot be written: {error.strerror}"


def is_of_stdout(error: OSError) -> bool:
    """Whether an error comes from printing by a library (the help, say).

    Writing to an open file fails with such errors; our own files are written where they are caught.
    """
    return error.filename is None and error.errno in _WRITING


def abandon_stdout() -> None:
    """Give up what could not be written.

    The interpreter flushes standard output once more at its end, and would print a traceback.
    """
    if sys.stdout is not None:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


def say(message: str) -> None:
    """Print a line for people on standard error, unless that is closed."""
    if sys.stderr is not None:
        sys.stderr.write(f"{PROG}: {message}\n")
