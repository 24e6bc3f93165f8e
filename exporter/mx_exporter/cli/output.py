"""Where a command writes its result: to standard output, or to a file that is there whole or not
at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from ..errors import MxError, UsageError
from .stdio import put


class Output:
    """Takes a result; as a context manager, which puts a file in place when all went well.

    A link keeps leading where it leads. What is there and is no file, a pipe or a device, is
    written to as it is.

    :param path: the file; None or ``-``: standard output.
    """

    def __init__(self, path: str | None) -> None:
        self._path = None if path == "-" else path
        #: Where the result goes, and where it is made before; empty: there itself.
        self._target = self._temporary = ""
        self._file: BinaryIO | None = None

    def __enter__(self) -> Output:
        if self._path is not None:
            try:
                if _is_file_to_be(self._path):
                    self._target = os.path.realpath(self._path)
                    folder, name = os.path.split(self._target)
                    fd, self._temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
                    self._file = open(fd, "wb")
                else:
                    self._target = self._path
                    self._file = open(self._path, "wb")
            except OSError as error:
                raise self._cannot(error) from None
        return self

    @property
    def place(self) -> str:
        """The file to be filled, for a library that opens it itself."""
        return self._temporary or self._target

    def write(self, data: bytes) -> None:
        """Write more of the result.

        :raises MxError: it cannot be written; the message says why.
        """
        if self._file is None:
            put(data)
            return
        try:
            self._file.write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._cannot(error) from None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is None or self._path is None:
            return
        try:
            self._file.close()
            if kind is None and self._temporary:
                os.chmod(self._temporary, 0o666 & ~_umask())
                os.replace(self._temporary, self._target)
                self._temporary = ""
            elif isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise self._cannot(error) from None
        except BrokenPipeError:
            raise
        except OSError as failure:
            if kind is None:
                raise self._cannot(failure) from None
        finally:
            if self._temporary:
                with contextlib.suppress(OSError):
                    os.unlink(self._temporary)

    def _cannot(self, error: OSError) -> MxError:
        return MxError(f"{self._path} cannot be written: {error.strerror}")


def _is_file_to_be(path: str) -> bool:
    """Whether there is a file, or nothing yet."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


class NewFolder:
    """A folder of results, as a context manager that gives the place to fill; it gets its name
    when all went well.

    :param path: the folder, which is new or empty.
    :raises MxError: it cannot be made.
    :raises UsageError: there is something in it.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._temporary = Path()

    def __enter__(self) -> Path:
        try:
            if self._path.exists() and (not self._path.is_dir() or any(self._path.iterdir())):
                raise UsageError(f"{self._path} is not empty; name a folder that is new or empty")
            parent = self._path.absolute().parent
            parent.mkdir(parents=True, exist_ok=True)
            self._temporary = Path(tempfile.mkdtemp(prefix=f".{self._path.name}.", dir=parent))
        except OSError as error:
            raise self._cannot(error) from None
        return self._temporary

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._temporary.chmod(0o777 & ~_umask())
                self._temporary.rename(self._path)  # over an empty one as well
            elif isinstance(error, OSError):
                raise self._cannot(error) from None
        except OSError as failure:
            raise self._cannot(failure) from None
        finally:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _cannot(self, error: OSError) -> MxError:
        return MxError(f"{self._path} cannot be written: {error.strerror or error}")


def _umask() -> int:
    """The mask of this process, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
