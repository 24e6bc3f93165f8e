"""The doctor: would events of a process started like this one arrive? It writes nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import stat
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from mx_log.locks import open_directory
from mx_log.variables import doubts
from mx_log.volume import limit_on
from mx_log.words import counted

from ..context.rank import find_rank
from ..log.directory import weigh
from ..settings import Settings, read_settings
from .doctor_client import examine_route

#: Less free space than a header and a few events take.
_LEAST_SPACE = 16 * 1024


class Report(NamedTuple):
    """What was found. ``obstacles`` keep events from arriving, ``remarks`` do not."""

    facts: dict[str, Any]
    obstacles: list[str]
    remarks: list[str]

    @property
    def healthy(self) -> bool:
        """Whether events would arrive."""
        return not self.obstacles


def examine(settings: Settings | None = None) -> Report:
    """Examine the environment (default: the process's own). Raises nothing."""
    settings = settings or read_settings()
    rank, source = find_rank()
    report = Report(
        {
            "enabled": settings.enabled,
            "directory": settings.directory,
            "directory_from": "MX_METRICS_DIR" if settings.named else "default",
            "user": _user(os.geteuid()),
            "owner": None,
            "free_bytes": None,
            "our_bytes": None,
            "max_bytes": settings.max_bytes,
            "segment_bytes": settings.segment_bytes,
            "scheme": settings.scheme,
            "rank": rank,
            "rank_from": source,
            "identity": dict(settings.identity),
            "modelexpress": _installed("modelexpress"),
            "mx_metrics": _installed("mx-metrics"),
            "structlog": _installed("structlog"),
            "orjson": _installed("orjson"),
        },
        [],
        list(dict.fromkeys([*settings.problems, *doubts(os.environ)])),
    )
    if not settings.enabled:
        report.obstacles.append("metrics are off: set MX_METRICS_ENABLED=1")
    report.obstacles.extend(
        f"{name} is not installed" for name in ("structlog", "orjson") if not report.facts[name]
    )
    if report.facts["modelexpress"] is None:
        report.remarks.append(
            "modelexpress is not installed here: headers will say version unknown"
        )
    if rank is None:
        report.remarks.append("no rank is known yet: events will say rank null until one is")
    route = examine_route(report.facts["modelexpress"], settings.enabled, os.environ)
    report.facts["routed_by"] = route.by
    report.obstacles.extend(route.obstacles)
    report.remarks.extend(route.remarks)
    _examine_directory(settings, report)
    return report


def _examine_directory(settings: Settings, report: Report) -> None:
    path = settings.directory
    try:
        status = os.stat(path) if settings.named else os.lstat(path)
    except FileNotFoundError:
        _examine_parent(path, report)
        return
    except OSError as error:
        report.obstacles.append(f"{path} cannot be looked at: {error.strerror}")
        return
    report.facts["owner"] = _user(status.st_uid)
    if not stat.S_ISDIR(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no directory"
        report.obstacles.append(f"{path} is {kind}; remove it or name another by MX_METRICS_DIR")
        return
    if not settings.named and status.st_uid != os.geteuid():
        report.obstacles.append(
            f"{path} belongs to {_user(status.st_uid)}, and the default directory is used only"
            " while it is our own: name one by MX_METRICS_DIR"
        )
    if not _may_write(path):
        report.obstacles.append(f"{path} may not be written by {report.facts['user']}")
    elif status.st_mode & stat.S_ISVTX and status.st_uid != os.geteuid():
        report.remarks.append(
            f"{path} belongs to {report.facts['owner']} and is sticky: an exporter can remove our"
            f" segments only as that user, or as {report.facts['user']}"
        )
    _examine_space(path, report)
    try:
        report.facts["our_bytes"] = used = weigh(path)
        of_client = sum(name.endswith(".db") for name in os.listdir(path))
    except OSError as error:
        report.obstacles.append(f"{path} cannot be listed: {error.strerror}")
        return
    most = report.facts["max_bytes"]
    if used >= most:
        report.obstacles.append(
            f"{path} holds {used} bytes of events, and the limit is {most}"
            " (MX_METRICS_MAX_BYTES): is an exporter running that makes room?"
        )
    if of_client:
        report.remarks.append(
            f"{path} has {counted(of_client, '.db file')} of a client that"
            " writes its own metrics: they are none of ours, and say that it was not routed then"
        )
    if not _has_flock(path):
        report.remarks.append(
            f"{path} has no flock: finished writers cannot be told from living ones"
        )


def _examine_parent(path: str, report: Report) -> None:
    """A missing directory is made at the first event, where its nearest parent allows it."""
    parent = os.path.dirname(path)
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        report.obstacles.append(f"{path} cannot be made: {parent} is no directory")
    elif not _may_write(parent):
        report.obstacles.append(
            f"{path} is missing, and {parent} may not be written by {report.facts['user']}"
        )
    else:
        report.remarks.append(f"{path} is missing and will be made at the first event")
        _examine_space(parent, report)


def _examine_space(path: str, report: Report) -> None:
    with contextlib.suppress(OSError):
        space = os.statvfs(path)
        report.facts["free_bytes"] = free = space.f_bavail * space.f_frsize
        wanted = report.facts["max_bytes"]
        report.facts["max_bytes"] = most = limit_on(path, wanted)
        if most < wanted:
            report.remarks.append(
                f"the limit of {wanted} bytes (MX_METRICS_MAX_BYTES) is more than half of the file"
                f" system of {path}: {most} holds instead"
            )
        if space.f_flag & os.ST_RDONLY:
            report.obstacles.append(f"{path} is mounted read-only")
        elif free < _LEAST_SPACE:
            report.obstacles.append(f"the file system of {path} has {free} bytes left")
        elif free < most:
            report.remarks.append(
                f"the file system of {path} has {free} bytes left, less than the limit of"
                f" {most} (MX_METRICS_MAX_BYTES)"
            )


def _may_write(path: str) -> bool:
    try:
        return os.access(path, os.W_OK | os.X_OK, effective_ids=True)
    except (NotImplementedError, OSError):
        return os.access(path, os.W_OK | os.X_OK)


def _has_flock(path: str) -> bool:
    """Tried on the directory itself, which nobody locks: nothing is made for it."""
    try:
        folder = open_directory(path)
    except OSError:
        return True
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def as_text(report: Report) -> str:
    """The report for people."""
    facts = report.facts
    rows = {
        "metrics": "on" if facts["enabled"] else "off",
        "directory": f"{facts['directory']} ({facts['directory_from']})",
        "owner": facts["owner"] or "not there yet",
        "user": facts["user"],
        "free space": _bytes(facts["free_bytes"]),
        "our files": f"{_bytes(facts['our_bytes'])} of at most {_bytes(facts['max_bytes'])}",
        "scheme": repr(facts["scheme"]),
        "rank": "unknown"
        if facts["rank"] is None
        else f"{facts['rank']} (from {facts['rank_from']})",
        "says": ", ".join(f"{name} {said}" for name, said in facts["identity"].items()) or "-",
        "client": f"modelexpress {facts['modelexpress'] or 'not installed'},"
        f" routed by {facts['routed_by'] or 'nothing'}",
        "emitter": ", ".join(
            f"{name} {facts[name.replace('-', '_')] or 'not installed'}"
            for name in ("mx-metrics", "structlog", "orjson")
        ),
    }
    lines = [f"{name:<11} {value}" for name, value in rows.items()]
    lines += [f"note: {remark}" for remark in report.remarks]
    lines += [f"OBSTACLE: {obstacle}" for obstacle in report.obstacles]
    lines.append("Events will arrive." if report.healthy else "Events will not arrive.")
    return "\n".join(lines) + "\n"


def _bytes(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**20:,.1f} MiB"
