"""Where a command writes its result: to standard output, or to a file that is there whole or not
at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from ..errors import MxError, UsageError
from .stdio import put


class Output:
    """Takes a result; as a context manager, which puts a file in place when all went well.

    :param path: the file; None or ``-``: standard output.
    """

    def __init__(self, path: str | None) -> None:
        self._path = None if path == "-" else path
        self._temporary = ""
        self._file: BinaryIO | None = None

    def __enter__(self) -> Output:
        if self._path is not None:
            try:
                folder = os.path.dirname(self._path) or os.curdir
                prefix = f".{os.path.basename(self._path)}."
                fd, self._temporary = tempfile.mkstemp(prefix=prefix, dir=folder)
            except OSError as error:
                raise self._cannot(error) from None
            self._file = open(fd, "wb")
        return self

    @property
    def place(self) -> str:
        """The file to be filled, for a library that opens it itself."""
        return self._temporary

    def write(self, data: bytes) -> None:
        """Write more of the result.

        :raises MxError: it cannot be written; the message says why.
        """
        if self._file is None:
            put(data)
            return
        try:
            self._file.write(data)
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
            if kind is None:
                os.chmod(self._temporary, 0o666 & ~_umask())
                os.replace(self._temporary, self._path)
                self._temporary = ""
            elif isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise self._cannot(error) from None
        except OSError as failure:
            if kind is None:
                raise self._cannot(failure) from None
        finally:
            if self._temporary:
                with contextlib.suppress(OSError):
                    os.unlink(self._temporary)

    def _cannot(self, error: OSError) -> MxError:
        return MxError(f"{self._path} cannot be written: {error.strerror}")


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
