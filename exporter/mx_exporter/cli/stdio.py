"""What commands that print a result say on standard output and standard error."""

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

    :raises MxError: whoever started us closed it.
    """
    if sys.stdout is None:
        raise MxError("standard output is closed; nothing can be printed")


def put(data: bytes) -> None:
    """Print a result.

    :raises MxError: it cannot be written, and why.
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
    """What is said of it."""
    return f"standard output cannot be written: {error.strerror}"


def is_of_stdout(error: OSError) -> bool:
    """Whether printing failed, where somebody else's code prints (the help, say): what writing to
    an open file fails with. No file of ours is written without minding that."""
    return error.filename is None and error.errno in _WRITING


def abandon_stdout() -> None:
    """Let what could not be written go.

    The interpreter flushes once more as it leaves, and would complain.
    """
    if sys.stdout is not None:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


def say(message: str) -> None:
    """A line for people; nothing where standard error is closed."""
    if sys.stderr is not None:
        sys.stderr.write(f"{PROG}: {message}\n")
