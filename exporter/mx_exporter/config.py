"""The settings of a command: one table for flags, variables, defaults and help.

:class:`Settings` is the table. Each field declares its flag, its environment variable, how a
text becomes a value, the default and the help text; the command line makes its options from it
and the documentation its table (:data:`OPTIONS`). A flag goes before its variable, a variable
before the default; a blank variable is an unset one. Nothing else reads the environment.
"""

from __future__ import annotations

import math
import os
import re
import socket
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from mx_log.files import DEFAULT_DIRECTORY, DEFAULT_MAX_BYTES
from mx_log.values import FALSE, TRUE, whole_number

from .errors import UsageError


class Directory(NamedTuple):
    """Where the segments lie, and whether somebody named the place.

    A directory that was named is used as it is. The default lies where anybody may write, so it
    is used only while it is a real directory of our own user: see :meth:`objection`.
    """

    path: str
    named: bool

    def objection(self) -> str | None:
        """Why the directory may not be read, or None. One that does not exist is no objection."""
        if self.named:
            return None
        try:
            found = os.lstat(self.path)
        except OSError:
            return None
        if stat.S_ISLNK(found.st_mode):
            return "is a symbolic link"
        if not stat.S_ISDIR(found.st_mode):
            return "is not a directory"
        if found.st_uid != os.geteuid():
            return f"belongs to uid {found.st_uid}, and this is uid {os.geteuid()}"
        return None


class Listen(NamedTuple):
    """Where the endpoint listens. ``host`` None: all interfaces. ``port`` 0: no endpoint."""

    host: str | None
    port: int

    def __str__(self) -> str:
        host = "*" if self.host is None else self.host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


class Option(NamedTuple):
    """A row of the table. ``parse`` takes a trimmed text and raises ValueError saying what was
    expected. ``shown`` is the default as help and documentation show it."""

    name: str
    flag: str | None
    variable: str | None
    parse: Callable[[str], Any]
    shown: str
    help: str
    metavar: str


# --------------------------------------------------------------------------------------
# From text to value


def _at_least_one(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        raise ValueError("expected a whole number, at least 1")
    return number


def _port(text: str) -> int:
    try:
        port = whole_number(text)
    except ValueError:
        port = 65536
    if port > 65535:
        raise ValueError("expected a port up to 65535 (0 or below: no endpoint)")
    return max(port, 0)


def _listen(text: str) -> Listen:
    match = re.fullmatch(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^:\[\]]*)):(?P<port>[^:]+)", text)
    if match is None:
        raise ValueError("expected HOST:PORT, such as 127.0.0.1:9402, [::1]:9402 or :9402")
    return Listen(match["v6"] or match["host"] or None, _port(match["port"]))


def _boolean(text: str) -> bool:
    word = text.lower()
    if word not in TRUE and word not in FALSE:
        raise ValueError("expected 1, true, yes, on, or 0, false, no, off")
    return word in TRUE


def _directory(text: str) -> Directory:
    if "\0" in text:
        raise ValueError("expected a path")
    return Directory(text, named=True)


def _path(text: str) -> str:
    return _directory(text).path


def _gateway(text: str) -> str:
    """An address as `push_to_gateway` takes it, without a slash at its end."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        # Reading the port is what looks at it.
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        good = good and not (parts.query or parts.fragment)
    except ValueError:
        good = False
    if not good or any(character.isspace() for character in url):
        raise ValueError("expected HOST:PORT or an http(s) address, such as http://gateway:9091")
    return url.rstrip("/")


def _text(text: str) -> str:
    return text


def _duration(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError("expected a number of seconds, 0 or more")
    return seconds


DEFAULT_PORT = 9402

#: What a command says that shows the label.
SOURCE_ID_WARNING = "source_worker_id is shown as a label: its series grow without end"

#: Seconds between two tries of a standby to take over.
DEFAULT_BIND_RETRY_SECS = 15.0


def _bind_retry(text: str) -> float:
    """Never an error: a standby that gives up over this would be the worse surprise."""
    try:
        seconds = float(text)
    except ValueError:
        return DEFAULT_BIND_RETRY_SECS
    return max(seconds, 1.0) if math.isfinite(seconds) else DEFAULT_BIND_RETRY_SECS


# --------------------------------------------------------------------------------------
# The table


def _option(
    parse: Callable[[str], Any],
    help: str,
    shown: str,
    *,
    flag: str | None = None,
    variable: str | None = None,
    metavar: str = "TEXT",
) -> dict[str, Any]:
    return {
        "flag": flag,
        "variable": variable,
        "parse": parse,
        "shown": shown,
        "help": help,
        "metavar": metavar,
    }


@dataclass(frozen=True)
class Settings:
    """What a command was told, built once by :func:`read_settings`."""

    directory: Directory = field(
        default=Directory(DEFAULT_DIRECTORY, named=False),
        metadata=_option(
            _directory,
            "Directory of the segments.",
            f"{DEFAULT_DIRECTORY}, while it is a directory of our own user",
            flag="--dir",
            variable="MX_METRICS_DIR",
            metavar="DIR",
        ),
    )
    listen: Listen | None = field(
        default=None,
        metadata=_option(
            _listen,
            "Address of the endpoint; without a host, all interfaces. Goes before MX_METRICS_PORT.",
            "all interfaces, MX_METRICS_PORT",
            flag="--listen",
            metavar="HOST:PORT",
        ),
    )
    port: int | None = field(
        default=None,
        metadata=_option(
            _port,
            "Port of the endpoint on all interfaces; 0 or below: no endpoint. For run and push, "
            "one that is not given is none beside a gateway.",
            str(DEFAULT_PORT),
            flag="--port",
            variable="MX_METRICS_PORT",
            metavar="PORT",
        ),
    )
    web_config_file: str | None = field(
        default=None,
        metadata=_option(
            _path,
            "File that asks for TLS and passwords on the endpoint, with the keys that exporters "
            "have in common; read again when it changes.",
            "none",
            flag="--web.config.file",
            metavar="FILE",
        ),
    )
    source_id_label: bool = field(
        default=False,
        metadata=_option(
            _boolean,
            "Show source_worker_id as a label; it grows without end, so for benchmark runs only.",
            "off",
            flag="--source-id-label",
            variable="MX_METRICS_SOURCE_ID_LABEL",
        ),
    )
    max_series: int = field(
        default=10_000,
        metadata=_option(
            _at_least_one,
            "Series a family may have; further label sets are refused and counted.",
            "10000",
            flag="--max-series",
            variable="MX_METRICS_MAX_SERIES",
            metavar="N",
        ),
    )
    max_bytes: int = field(
        default=DEFAULT_MAX_BYTES,
        metadata=_option(
            _at_least_one,
            "Bound on our files in the directory, as the emitters have it.",
            "33554432 (32 MiB)",
            variable="MX_METRICS_MAX_BYTES",
            metavar="BYTES",
        ),
    )
    retain_bytes: int = field(
        default=16 * 1024 * 1024,
        metadata=_option(
            _at_least_one,
            "Bytes of finished segments to keep; at most half of MX_METRICS_MAX_BYTES counts.",
            "16777216 (16 MiB)",
            variable="MX_METRICS_RETAIN_BYTES",
            metavar="BYTES",
        ),
    )
    retain_seconds: float = field(
        default=60.0,
        metadata=_option(
            _duration,
            "Seconds that a finished segment stays at least, for those who copy segments; waived "
            "where the writers would run out of room.",
            "60",
            flag="--retain-seconds",
            variable="MX_METRICS_RETAIN_SECONDS",
            metavar="SECONDS",
        ),
    )
    tee: bool = field(
        default=False,
        metadata=_option(
            _boolean,
            "Write each event line to standard output as well, for the node's log collector.",
            "off",
            flag="--tee",
        ),
    )
    archive_dir: str | None = field(
        default=None,
        metadata=_option(
            _path,
            "Directory that gets each finished segment, gzipped; it must be there.",
            "none",
            flag="--archive-dir",
            metavar="DIR",
        ),
    )
    bind_retry_secs: float = field(
        default=DEFAULT_BIND_RETRY_SECS,
        metadata=_option(
            _bind_retry,
            "Seconds between two tries of a standby to take over, at least 1; junk: the default.",
            "15",
            variable="MX_METRICS_BIND_RETRY_SECS",
            metavar="SECONDS",
        ),
    )

    pushgateway: str | None = field(
        default=None,
        metadata=_option(
            _gateway,
            "Pushgateway that run and push send the metrics to, once, where no port is served.",
            "none",
            flag="--pushgateway",
            variable="MX_METRICS_PUSHGATEWAY",
            metavar="URL",
        ),
    )
    job: str = field(
        default="modelexpress",
        metadata=_option(
            _text,
            "Label job of what is pushed.",
            "modelexpress",
            flag="--job",
            metavar="NAME",
        ),
    )
    pod_uid: str | None = field(
        default=None,
        metadata=_option(_text, "Label pod of what is pushed.", "none", variable="POD_UID"),
    )
    pod_name: str | None = field(
        default=None,
        metadata=_option(
            _text,
            "The same where there is no POD_UID; with neither it is the name of the host.",
            "none",
            variable="POD_NAME",
        ),
    )

    @property
    def endpoint(self) -> Listen | None:
        """Where to listen, or None when no endpoint is wanted."""
        port = DEFAULT_PORT if self.port is None else self.port
        listen = Listen(None, port) if self.listen is None else self.listen
        return listen if listen.port else None

    @property
    def asked_endpoint(self) -> Listen | None:
        """The same, where a port that was not given is none."""
        return None if self.listen is None and self.port is None else self.endpoint

    @property
    def pod(self) -> str:
        """What tells our pushes from those of other pods."""
        return self.pod_uid or self.pod_name or socket.gethostname()


#: The table's rows by field name, in order.
OPTIONS: dict[str, Option] = {f.name: Option(f.name, **f.metadata) for f in fields(Settings)}


def read_settings(
    flags: Mapping[str, str | bool | None],
    environ: Mapping[str, str] | None = None,
    *,
    names: Collection[str] = OPTIONS.keys(),
    tolerate: Callable[[str], None] | None = None,
) -> Settings:
    """Build the settings.

    :param flags: texts (booleans for switches) by field name; None when a flag was not given.
    :param environ: the environment; None takes the process's own.
    :param names: rows that the command reads; a bad value of another one is none of its business.
    :param tolerate: told of each variable whose value is bad, for a command that must go on: the
        default holds instead, or no port.
    :raises UsageError: a bad value, naming its flag or variable.
    """
    environ = os.environ if environ is None else environ
    if flags.get("listen") is not None and flags.get("port") is not None:
        raise UsageError("--listen and --port: only one of them can be had")
    values: dict[str, Any] = {}
    for name in names:
        option, given = OPTIONS[name], flags.get(name)
        if isinstance(given, bool):
            values[name] = given
        elif given is not None:
            values[name] = _parse(option, str(option.flag), given)
        elif option.variable and (text := environ.get(option.variable, "").strip()):
            try:
                values[name] = _parse(option, option.variable, text)
            except UsageError as error:
                if tolerate is None:
                    raise
                if name == "port":  # an endpoint that nobody can find would be the worse surprise
                    values[name] = 0
                tolerate(str(error))
    settings = Settings(**values)
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    archive, directory = settings.archive_dir, settings.directory.path
    if archive is None:
        return
    if os.path.realpath(archive) == os.path.realpath(directory):
        raise UsageError(f"--archive-dir: {archive} is the directory of the segments")
    if os.path.exists(archive) and not os.path.isdir(archive):
        raise UsageError(f"--archive-dir: {archive} is not a directory")


def resolve_directory(
    flag: str | None = None, environ: Mapping[str, str] | None = None
) -> Directory:
    """The directory by flag, else ``MX_METRICS_DIR``, else the default.

    :raises UsageError: the value cannot be a path.
    """
    return read_settings({"directory": flag}, environ, names=["directory"]).directory


def _parse(option: Option, where: str, text: str) -> Any:
    try:
        text = text.strip()
        if not text:
            raise ValueError("expected a value")
        return option.parse(text)
    except ValueError as error:
        raise UsageError(f"{where}: bad value {text!r}: {error}") from None
