"""The settings of a command: one table for flags, variables, defaults and help.

:class:`Settings` is the table. Each field declares its flag, its environment variable, how a
text becomes a value (`option_values`), the default and the help text; the command line makes its
options from it and the documentation its table (:data:`OPTIONS`). A flag takes precedence over its
variable, a variable over the default; a blank variable is an unset one, and so is one that
Kubernetes set for a Service. Nothing else reads the environment.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from mx_log import variables
from mx_log.files import DEFAULT_DIRECTORY, DEFAULT_MAX_BYTES

from .errors import UsageError
from .option_values import (
    DEFAULT_BIND_RETRY_SECS,
    Directory,
    Listen,
    parse_address,
    parse_at_least_one,
    parse_bind_retry,
    parse_boolean,
    parse_created,
    parse_directory,
    parse_duration,
    parse_gateway,
    parse_listen,
    parse_path,
    parse_port,
    parse_text,
)

__all__ = [
    "DESTINATIONS",
    "OPTIONS",
    "PUSHING",
    "SOURCE_ID_WARNING",
    "Directory",
    "Listen",
    "Option",
    "Settings",
    "doubts",
    "read_settings",
    "resolve_directory",
]

DEFAULT_PORT = 9402

#: The warning of a command that shows the label.
SOURCE_ID_WARNING = "source_worker_id is shown as a label: its series grow without end"


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
    """The settings of one command, built once by :func:`read_settings`."""

    directory: Directory = field(
        default=Directory(DEFAULT_DIRECTORY, named=False),
        metadata=_option(
            parse_directory,
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
            parse_listen,
            "Address of the endpoint; without a host, all interfaces. Takes precedence over "
            "MX_METRICS_PORT.",
            "all interfaces, MX_METRICS_PORT",
            flag="--listen",
            metavar="HOST:PORT",
        ),
    )
    port: int | None = field(
        default=None,
        metadata=_option(
            parse_port,
            "Port of the endpoint on all interfaces; 0 or below: no endpoint. Beside a "
            "Pushgateway, run and push have no endpoint unless a port is given.",
            str(DEFAULT_PORT),
            flag="--port",
            variable="MX_METRICS_PORT",
            metavar="PORT",
        ),
    )
    web_config_file: str | None = field(
        default=None,
        metadata=_option(
            parse_path,
            "File that sets TLS and passwords for the endpoint, with the keys that the exporters "
            "of Prometheus share; read again when it changes.",
            "none",
            flag="--web.config.file",
            metavar="FILE",
        ),
    )
    source_id_label: bool = field(
        default=False,
        metadata=_option(
            parse_boolean,
            "Show source_worker_id as a label; it grows without end, so for benchmark runs only.",
            "off",
            flag="--source-id-label",
            variable="MX_METRICS_SOURCE_ID_LABEL",
        ),
    )
    created_series: bool = field(
        default=True,
        metadata=_option(
            parse_created,
            "True, 1 or t: no creation times in OpenMetrics, as in programs that use the client "
            "library for Python. A Prometheus without created timestamps stores each as a series.",
            "off",
            variable="PROMETHEUS_DISABLE_CREATED_SERIES",
        ),
    )
    max_series: int = field(
        default=10_000,
        metadata=_option(
            parse_at_least_one,
            "Most series of a family that are shown: the oldest. The others are counted.",
            "10000",
            flag="--max-series",
            variable="MX_METRICS_MAX_SERIES",
            metavar="N",
        ),
    )
    catalog: str | None = field(
        default=None,
        metadata=_option(
            parse_path,
            "File of TOML with families of your own, beside the built-in ones.",
            "none",
            flag="--catalog",
            variable="MX_METRICS_CATALOG",
            metavar="FILE",
        ),
    )
    max_bytes: int = field(
        default=DEFAULT_MAX_BYTES,
        metadata=_option(
            parse_at_least_one,
            "Bound on the size of all our files in the directory, or half of the volume if that is "
            "less; the same as the emitters' bound.",
            "33554432 (32 MiB)",
            variable="MX_METRICS_MAX_BYTES",
            metavar="BYTES",
        ),
    )
    retain_bytes: int = field(
        default=16 * 1024 * 1024,
        metadata=_option(
            parse_at_least_one,
            "Bytes of finished segments to keep, at most half of MX_METRICS_MAX_BYTES.",
            "16777216 (16 MiB)",
            variable="MX_METRICS_RETAIN_BYTES",
            metavar="BYTES",
        ),
    )
    retain_seconds: float = field(
        default=60.0,
        metadata=_option(
            parse_duration,
            "Seconds that a finished segment stays at least, so that others can copy it; waived "
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
            parse_boolean,
            "Also write each event line to standard output, for the node's log collector.",
            "off",
            flag="--tee",
            variable="MX_METRICS_TEE",
        ),
    )
    archive_dir: str | None = field(
        default=None,
        metadata=_option(
            parse_path,
            "Directory that receives each finished segment, gzipped; it must exist.",
            "none",
            flag="--archive-dir",
            variable="MX_METRICS_ARCHIVE_DIR",
            metavar="DIR",
        ),
    )
    bind_retry_secs: float = field(
        default=DEFAULT_BIND_RETRY_SECS,
        metadata=_option(
            parse_bind_retry,
            "Seconds between a standby's tries to take over, at least 1; junk means the default.",
            "15",
            variable="MX_METRICS_BIND_RETRY_SECS",
            metavar="SECONDS",
        ),
    )

    pushgateway: str | None = field(
        default=None,
        metadata=_option(
            parse_gateway,
            "Pushgateway that run and push send the metrics to, once, if no port is served.",
            "none",
            flag="--pushgateway",
            variable="MX_METRICS_PUSHGATEWAY",
            metavar="URL",
        ),
    )
    remote_write: str | None = field(
        default=None,
        metadata=_option(
            parse_address,
            "The same by remote write, to http://HOST:9090/api/v1/write, say.",
            "none",
            flag="--remote-write",
            variable="MX_METRICS_REMOTE_WRITE",
            metavar="URL",
        ),
    )
    otlp: str | None = field(
        default=None,
        metadata=_option(
            parse_address,
            "The same by OTLP over HTTP, to http://HOST:4318, say.",
            "none",
            flag="--otlp",
            variable="MX_METRICS_OTLP",
            metavar="URL",
        ),
    )
    bearer_token_file: str | None = field(
        default=None,
        metadata=_option(
            parse_path,
            "File of the token for remote write or OTLP; a user and a password may be in the "
            "address.",
            "none",
            flag="--bearer-token-file",
            variable="MX_METRICS_BEARER_TOKEN_FILE",
            metavar="FILE",
        ),
    )
    job: str = field(
        default="modelexpress",
        metadata=_option(
            parse_text,
            "Value of the label job in what is pushed.",
            "modelexpress",
            flag="--job",
            metavar="NAME",
        ),
    )
    pod_uid: str | None = field(
        default=None,
        metadata=_option(
            parse_text, "Value of the label pod in what is pushed.", "none", variable="POD_UID"
        ),
    )
    pod_name: str | None = field(
        default=None,
        metadata=_option(
            parse_text,
            "The same where POD_UID is not set; with neither, it is the name of the host.",
            "none",
            variable="POD_NAME",
        ),
    )
    pod_namespace: str | None = field(
        default=None,
        metadata=_option(
            parse_text, "The pod's namespace, for OTLP.", "none", variable="POD_NAMESPACE"
        ),
    )
    node_name: str | None = field(
        default=None,
        metadata=_option(parse_text, "The pod's node, for OTLP.", "none", variable="NODE_NAME"),
    )

    @property
    def endpoint(self) -> Listen | None:
        """Where to listen, or None when no endpoint is wanted."""
        port = DEFAULT_PORT if self.port is None else self.port
        listen = Listen(None, port) if self.listen is None else self.listen
        return listen if listen.port else None

    @property
    def asked_endpoint(self) -> Listen | None:
        """The same, but None where neither an address nor a port was given."""
        return None if self.listen is None and self.port is None else self.endpoint

    @property
    def destination(self) -> str | None:
        """The row that says where to push to, or None where there is nowhere."""
        return next((name for name in DESTINATIONS if getattr(self, name) is not None), None)

    def without_destination(self) -> Settings:
        """The same with nowhere to push to."""
        return replace(self, pushgateway=None, remote_write=None, otlp=None)

    @property
    def pod(self) -> str:
        """The label that keeps this pod's pushes apart from those of others."""
        return self.pod_uid or self.pod_name or socket.gethostname()


#: Where run and push may send metrics to, of which there is one at a time: the rows, and what is
#: said of them.
DESTINATIONS = {
    "pushgateway": "a Pushgateway",
    "remote_write": "an address for remote write",
    "otlp": "an address for OTLP",
}

#: The rows of a push.
PUSHING = (*DESTINATIONS, "bearer_token_file", "job")

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
    :param names: rows that the command reads; bad values of others are not looked at.
    :param tolerate: called with a message for each variable whose value is bad, by a command that
        must go on: the default holds instead, or no port.
    :raises UsageError: a bad value, naming its flag or variable.
    """
    environ = os.environ if environ is None else environ
    if flags.get("listen") is not None and flags.get("port") is not None:
        raise UsageError("--listen and --port: give only one of them")
    values: dict[str, Any] = {}
    for name in names:
        option, given = OPTIONS[name], flags.get(name)
        if isinstance(given, bool):
            values[name] = given
        elif given is not None:
            values[name] = _parse(option, str(option.flag), given)
        elif option.variable and (text := variables.given(environ, option.variable)):
            try:
                values[name] = _parse(option, option.variable, text)
            except UsageError as error:
                if tolerate is None:
                    raise
                if name == "port":  # an endpoint that nobody can find would be the worse surprise
                    values[name] = 0
                tolerate(str(error))
    settings = _with_one_destination(Settings(**values), flags, tolerate)
    if problem := _archive_problem(settings):
        option = OPTIONS["archive_dir"]
        if flags.get("archive_dir") is not None:
            raise UsageError(f"{option.flag}: {problem}")
        if tolerate is None:
            raise UsageError(f"{option.variable}: {problem}")
        tolerate(f"{option.variable}: {problem}")
        settings = replace(settings, archive_dir=None)
    return settings


def doubts(environ: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each variable of ``environ`` (default: the process's own) that can hardly be
    meant as it is."""
    return variables.doubts(os.environ if environ is None else environ)


def _with_one_destination(
    settings: Settings,
    flags: Mapping[str, str | bool | None],
    tolerate: Callable[[str], None] | None,
) -> Settings:
    """The settings with one destination at most: that of a flag counts before those of variables.

    :raises UsageError: there are several, and ``tolerate`` is None.
    """
    by_flag = [name for name in DESTINATIONS if flags.get(name) is not None]
    if len(by_flag) > 1:
        given = " and ".join(str(OPTIONS[name].flag) for name in by_flag)
        raise UsageError(f"{given}: give only one of them")
    found = by_flag or [name for name in DESTINATIONS if getattr(settings, name) is not None]
    if len(found) > 1:
        given = " and ".join(str(OPTIONS[name].variable) for name in found)
        problem = f"{given}: set only one of them"
        if tolerate is None:
            raise UsageError(problem)
        tolerate(problem)
        found = []
    bare = settings.without_destination()
    return replace(bare, **{found[0]: getattr(settings, found[0])}) if found else bare


def _archive_problem(settings: Settings) -> str | None:
    archive, directory = settings.archive_dir, settings.directory.path
    if archive is None:
        return None
    if os.path.realpath(archive) == os.path.realpath(directory):
        return f"{archive} is the directory of the segments"
    if not os.path.exists(archive):
        return f"{archive} does not exist; make it, or mount what shall be there"
    if not os.path.isdir(archive):
        return f"{archive} is not a directory"
    return None


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
