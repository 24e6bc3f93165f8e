"""The diagnosis of a directory: what stands there, and what it means when there are no segments.

A directory without a segment is the commonest mistake of a new user. So the log, a gauge and the
page for people all say what the exporter looks for, where, and as which user.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections import Counter
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from mx_log.files import is_ours

from ..config import Directory

#: What the exporter looks for.
PATTERN = "events-<12 hex digits>-<n>.jsonl"

#: States of a directory, each to be read after its path. ``segments`` is the only good one.
STATES = {
    "segments": "has segments, or the snapshot of some",
    "empty": "has no segment",
    "client_files": "has .db files of the client's multiprocess mode, and no segment",
    "missing": "does not exist",
    "not_a_directory": "is not a directory",
    "unreadable": "cannot be read",
    "refused": "is the default directory, and is not used",
}

_EMITTER = (
    "The engine has no emitter: the exporter only reads. Install mx-metrics in the engine's own "
    "Python as well, and start engines other than vLLM by `python -m mx_emitter run -- COMMAND`."
)
_ENABLED = "No engine has metrics on: set MX_METRICS_ENABLED=1 in the engine's environment."
_ELSEWHERE = (
    "The engine logs elsewhere: MX_METRICS_DIR must name the same directory for the engine "
    "and for the exporter, on the same volume, mounted in both containers."
)
_EARLY = "No load has begun yet: the emitter opens its segment when it is first used."
_DOCTOR = "To see what the engine would do, run `python -m mx_emitter` in its environment."

#: The likeliest causes, likeliest first.
CAUSES: dict[str, tuple[str, ...]] = {
    "segments": (),
    "empty": (_EMITTER, _ENABLED, _ELSEWHERE, _EARLY, _DOCTOR),
    "client_files": (
        "The engine's ModelExpress client still writes its own .db files: nothing routes its "
        "recorders to the log. Install mx-metrics in the engine's environment, and start engines "
        "other than vLLM by `python -m mx_emitter run -- COMMAND`.",
        _ENABLED,
        _ELSEWHERE,
        _DOCTOR,
    ),
    "missing": (_EMITTER, _ENABLED, _ELSEWHERE, _EARLY, _DOCTOR),
    "not_a_directory": ("MX_METRICS_DIR or --dir names something else than a directory.",),
    "unreadable": (
        "The exporter runs as another user than the engine: run both as one user, or let the "
        "directory be read by the exporter's group (fsGroup in a pod).",
        "Security rules of the system (SELinux, AppArmor) are in the way.",
    ),
    "refused": (
        "The default lies where anybody may write, so it is used only while it is a real "
        "directory of our own user: run the exporter as the engine's user, or name a directory "
        "for both with MX_METRICS_DIR, which is used as it is.",
    ),
}


@lru_cache(maxsize=64)
def user_text(uid: int) -> str:
    """A user for people: ``uid 1000 (alice)``, or ``uid 1000`` for one without a name."""
    try:
        return f"uid {uid} ({pwd.getpwuid(uid).pw_name})"
    except KeyError:
        return f"uid {uid}"


class Diagnosis(NamedTuple):
    """What stands at the path. ``detail`` is the system's message; ``owner`` and ``mode`` are empty
    where nothing stands."""

    path: str
    state: str
    detail: str = ""
    owner: str = ""
    mode: str = ""

    @property
    def what(self) -> str:
        """The state, to be read after the path."""
        return STATES[self.state] + (f" ({self.detail})" if self.detail else "")

    @property
    def text(self) -> str:
        """One line: the state, and what the exporter looks for as which user."""
        owned = f" [{self.mode}, {self.owner}]" if self.mode else ""
        user = user_text(os.geteuid())
        return f"{self.path}{owned} {self.what}; looking for {PATTERN} as {user}"


def diagnose(directory: Directory, *, segments: int, client_files: int, trouble: str) -> Diagnosis:
    """Diagnose the directory as it is now.

    :param segments: segments that the latest listing found there.
    :param client_files: ``.db`` files that it found.
    :param trouble: why it could not be listed; empty when it could.
    """
    path = directory.path
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return Diagnosis(path, "missing")
    except NotADirectoryError as error:
        return Diagnosis(path, "not_a_directory", error.strerror or str(error))
    except OSError as error:
        return Diagnosis(path, "unreadable", error.strerror or str(error))
    owner, mode = user_text(found.st_uid), stat.filemode(found.st_mode)
    objection = directory.objection()
    if objection is not None:
        return Diagnosis(path, "refused", f"it {objection}", owner, mode)
    if not stat.S_ISDIR(found.st_mode):
        return Diagnosis(path, "not_a_directory", "", owner, mode)
    if trouble:
        return Diagnosis(path, "unreadable", trouble, owner, mode)
    state = "segments" if segments else "client_files" if client_files else "empty"
    return Diagnosis(path, state, "", owner, mode)


def kinds_in(path: str, limit: int = 1000) -> str:
    """The kinds of files of others in a directory, for people: ``3 .db, 1 .txt``. Only endings: the
    page may be read by anybody, the names in the directory perhaps not. Reads ``limit`` names."""
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in islice(entries, limit) if not is_ours(entry.name)]
    except OSError:
        return ""
    kinds = Counter(os.path.splitext(name)[1] or "without an ending" for name in names)
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(5))
