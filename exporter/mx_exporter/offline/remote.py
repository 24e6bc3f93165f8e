"""Addresses as places to read logs from, by fsspec: ``s3://``, ``gs://``, ``https://`` and all else
that it has a package for. Nothing is copied to a disk.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, TypeVar, cast

from ..errors import MxError, UsageError
from .stores import Entry, Unreadable, shown

#: Bytes that are asked for at a time.
_AT_ONCE = 8 * 1024 * 1024

#: Seconds in which a connection must be made, and in which more must come.
_SECONDS = 60

#: Protocols that the extra ``remote`` reads; others want a package of their own.
_OF_THE_EXTRA = ("http", "https", "s3", "s3a")

_WEB = ("http", "https")

_Told = TypeVar("_Told")


@dataclass(frozen=True)
class Remote:
    """What an address leads to.

    :ivar system: fsspec's file system. It goes from process to process as its arguments.
    :ivar before: what an address there has before the path as the file system has it.
    """

    system: Any
    before: str
    live: bool = False

    @classmethod
    def of(cls, address: str) -> Remote:
        """The store that an address lies in.

        :raises UsageError: a package is missing, or no package has such addresses.
        """
        protocol = address.partition("://")[0].lower()
        try:
            import fsspec

            system, path = fsspec.url_to_fs(address, **_options(protocol))
        except ImportError as error:
            raise UsageError(f"{shown(address)}: {_missing(protocol, error)}") from None
        except Exception as error:  # noqa: BLE001 - it depends on the package what that is
            if isinstance(error, ValueError) and "Protocol not known" in str(error):
                why = f"no package has addresses that begin with {protocol}://"
            else:
                why = f"no address that can be read ({type(error).__name__})"
            raise UsageError(f"{shown(address)}: {why}") from None
        whole = address if address.endswith(path) else str(system.unstrip_protocol(path))
        if not address.endswith(path) and address.rstrip("/").endswith(path):
            whole = address.rstrip("/")
        return cls(system, whole.removesuffix(path))

    def matching(self, argument: str) -> list[Entry]:
        """See `Store`."""
        name = shown(argument)
        path = self._path(argument)
        try:
            self.system.invalidate_cache()
            found = self._info(path)
            if found is not None:
                return [found._replace(path=argument)]
            if self._is_pattern(path):
                if any("**" in part and part != "**" for part in path.split("/")):
                    raise UsageError(f"{name}: ** stands for directories, alone between slashes")
                matching = self.system.glob(path, detail=True)
                entries = [self._entry(info) for _, info in sorted(matching.items())]
                if entries:
                    return entries
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - it depends on the package what that is
            why = _why(error)
            if why is not None:
                raise MxError(f"{name}: cannot be read: {why}") from None
        if self._is_pattern(path):
            raise UsageError(f"{name}: nothing matches this pattern")
        raise UsageError(f"{name}: no such file or directory")

    def entries(self, directory: str) -> Iterator[Entry]:
        """See `Store`."""
        try:
            listed = self.system.ls(self._path(directory), detail=True)
            entries = sorted(map(self._entry, listed))
        except Exception as error:  # noqa: BLE001 - it depends on the package what that is
            raise MxError(f"{shown(directory)}: cannot be listed: {_said(error)}") from None
        yield from (entry for entry in entries if entry.name)

    def identity(self, path: str) -> str:
        """See `Store`."""
        return path

    real = identity

    def parent(self, path: str) -> str:
        """See `Store`."""
        return posixpath.dirname(self._bare(path))

    def lasts(self, _: str) -> bool:
        """See `Store`."""
        return True

    def open(self, path: str, *, listed: bool) -> RemoteStream:  # noqa: ARG002 - as `Store` has it
        """See `Store`."""
        return RemoteStream(self.system, self._path(path))

    def _info(self, path: str) -> Entry | None:
        """What there is by this name; None: nothing."""
        try:
            entry = self._entry(self.system.info(path))
            if path.endswith("/") and not entry.is_directory:  # a page that lists files, say
                entry = entry._replace(is_directory=self.system.isdir(path))
            return entry
        except Exception as error:
            if _why(error) is None:
                return None
            raise

    def _entry(self, info: Mapping[str, Any]) -> Entry:
        path = f"{self.before}{info['name']}"
        name = posixpath.basename(self._bare(path).rstrip("/"))
        return Entry(path, name, info.get("size") or 0, info.get("type") == "directory")

    def _path(self, address: str) -> str:
        """An address as the file system has it."""
        path = address.removeprefix(self.before)
        return path if self._is_web else path.rstrip("/") or path

    def _bare(self, address: str) -> str:
        return address.partition("?")[0] if self._is_web else address

    def _is_pattern(self, path: str) -> bool:
        return any(sign in path for sign in ("*[" if self._is_web else "*?["))

    @property
    def _is_web(self) -> bool:
        protocol = self.system.protocol
        return any(each in _WEB for each in ([protocol] if isinstance(protocol, str) else protocol))


class RemoteStream:
    """A file elsewhere that is open."""

    def __init__(self, system: Any, path: str) -> None:
        self._system = system
        self._path = path
        self._file = _opened(system, path, stream=True)
        self._whole: IO[bytes] | None = None

    def read(self, size: int) -> bytes:
        """See `Stream`."""
        return self._file.read(size)

    def whole(self) -> IO[bytes] | None:
        """See `Stream`."""
        if self._whole is None:
            self._whole = cast("IO[bytes]", _opened(self._system, self._path, stream=False))
        return self._whole

    def close(self) -> None:
        """See `Stream`."""
        self._file.close()
        if self._whole is not None:
            self._whole.close()


class _File(io.RawIOBase):
    """A file of fsspec that fails as other sources do.

    :param otherwise: what is said of a failure that says nothing.
    """

    def __init__(self, file: Any, otherwise: str = "") -> None:
        super().__init__()
        self._file = file
        self._otherwise = otherwise

    def read(self, size: int = -1) -> bytes:
        try:
            return cast(bytes, self._file.read(size))
        except Exception as error:  # noqa: BLE001 - it depends on the package what that is
            raise _unreadable("cannot be read", error, self._otherwise) from None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        try:
            return cast(int, self._file.seek(offset, whence))
        except Exception as error:  # noqa: BLE001 - it depends on the package what that is
            raise _unreadable("cannot be read", error, self._otherwise) from None

    def tell(self) -> int:
        return cast(int, self._file.tell())

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        super().close()
        self._file.close()


def _opened(system: Any, path: str, *, stream: bool) -> _File:
    # A file of the web is one answer; its parts not every server gives.
    web = "http" in system.protocol
    otherwise = "" if stream else "no parts of it are given, which a zip needs; unpack it first"
    try:
        file = system.open(path, "rb", block_size=0 if web and stream else _AT_ONCE)
        return _File(file, otherwise)
    except Exception as error:  # noqa: BLE001 - it depends on the package what that is
        raise _unreadable("cannot be opened", error) from None


def _options(protocol: str) -> dict[str, Any]:
    """What a file system is made with, beside what the environment says."""
    if protocol not in _WEB:
        return {}
    import aiohttp

    limit = aiohttp.ClientTimeout(total=None, sock_connect=_SECONDS, sock_read=_SECONDS)
    return {"client_kwargs": {"timeout": limit, "trust_env": True}}


# --------------------------------------------------------------------------------------
# What goes wrong. Messages of packages may hold the address with all that is in it.


def _missing(protocol: str, error: ImportError) -> str:
    package = (error.name or "").partition(".")[0]
    if package != "fsspec" and protocol not in _OF_THE_EXTRA:
        from fsspec.registry import known_implementations

        said: str = known_implementations.get(protocol, {}).get("err", "a package is missing")
        return said[:1].lower() + said[1:]
    return "a package is missing; install it with: pip install 'mx-metrics[remote]'"


def _unreadable(what: str, error: Exception, otherwise: str = "") -> Unreadable:
    return Unreadable(f"{what}: {_said(error, otherwise)}", vanished=_why(error) is None)


def _said(error: BaseException, otherwise: str = "") -> str:
    return _why(error, otherwise) or "no such file or directory"


#: Errors of packages that mean it, and say so by their name alone.
_LOST = (
    "ClientPayloadError",
    "ConnectionClosedError",
    "IncompleteRead",
    "IncompleteReadError",
    "ResponseStreamingError",
    "ServerDisconnectedError",
)


def _why(error: BaseException, otherwise: str = "") -> str | None:
    """Why something failed; None: there is no such thing.

    What began it says most: packages tell anything as a file that is not there.

    :param otherwise: what to say where nothing is known.
    """
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) and cause not in causes:
        causes.append(cause)
    for each in reversed(causes):
        status = getattr(each, "status", None) or _status(each)
        if status in (404, 410):
            return None
        if status in (401, 403):
            return f"access is denied ({status})"
        if isinstance(status, int):
            return f"the server answered {status}"
    if any(isinstance(each, PermissionError) for each in causes):
        return "access is denied"
    for each in reversed(causes):
        if isinstance(each, TimeoutError):
            return "it took too long"
        if type(each).__name__ in _LOST or type(each) is ConnectionError:
            return "the connection was lost"
        number = getattr(each, "errno", None)
        if isinstance(number, int) and number != errno.ENOENT:
            known = number in errno.errorcode
            return os.strerror(number) if known else "the host cannot be found"
    if any(isinstance(each, FileNotFoundError) for each in causes):
        return None
    return otherwise or type(causes[0]).__name__


def _status(error: BaseException) -> int | None:
    """The status of an answer, as botocore keeps it."""
    answer = getattr(error, "response", None)
    kept = answer.get("ResponseMetadata", {}) if isinstance(answer, dict) else {}
    return kept.get("HTTPStatusCode")
