"""Which writers of the sources still live, told by the locks on their segments."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import NamedTuple

from mx_log.locks import probe, read_head

from .local import open_file
from .sources import Directory, Found, Source, in_order, ours_in
from .stores import Unreadable


@dataclass
class Writers:
    """Which writers live, told by the locks on their segments."""

    #: Processes that may write on: those whose lines are in a segment that is held. Its header says
    #: whose it is; reading it adds the others.
    alive: set[str] = field(default_factory=set)
    #: Paths of the segments that are being written.
    open: set[str] = field(default_factory=set)


def survey(found: Found) -> Writers:
    """Tell which writers live, before anything is read.

    A writer opens its next segment, locked, before it lets go of the last one. So after the
    locks were tried the directories are listed again, until a listing brings nothing new:
    then a process without a locked segment is gone. Segments that were made meanwhile in a
    directory that was named are added to ``found``.
    """
    writers = Writers()
    looked: set[str] = set()
    newest: dict[str, _Look] = {}
    # By absolute path, but listed as they were named: parents may bar us.
    named = {os.path.abspath(each.path): each.path for each in found.directories if each.store.live}
    siblings = {directory: directory for directory in found.covered_here()}
    news = [source for source in found.sources if source.lockable]
    procs = {source.proc for source in news}.union(*found.covered.values())
    while True:
        for source in news:
            looked.add(os.path.abspath(source.path))
            look = _look(source)
            if look.held:
                writers.alive.add(look.proc)
                writers.open.add(source.path)
            newest[source.proc] = max(newest.get(source.proc, look), look)
            parent = os.path.dirname(source.path) or os.curdir
            siblings.setdefault(os.path.abspath(parent), parent)
        news = []
        for where, directory in {**siblings, **named}.items():
            for source in ours_in(Directory(directory), must=where in named):
                if not source.lockable or os.path.abspath(source.path) in looked:
                    continue
                if found.covers(source):
                    continue
                if where in named:
                    found.sources.append(source)
                elif source.proc not in procs:
                    continue
                news.append(source)
        if not news:
            break
    found.sources = in_order(found.sources)
    # Without locks nobody can tell whether the writer of the newest segment lives.
    for look in newest.values():
        if look.lockless:
            writers.alive.add(look.proc)
            writers.open.add(look.path)
    return writers


class _Look(NamedTuple):
    n: int
    path: str
    held: bool
    lockless: bool
    proc: str


def _look(source: Source) -> _Look:
    """Whether a plain segment is locked by its writer, and whether its header says that locks
    do not work there."""
    assert source.segment is not None
    n, path, proc = source.segment.n, source.path, source.proc
    nothing = _Look(n, path, held=False, lockless=False, proc=proc)
    try:
        fd = open_file(source.path, listed=source.listed)
    except Unreadable:
        return nothing
    try:
        held = not probe(fd)
        head = read_head(fd)
    except OSError:
        return nothing
    finally:
        os.close(fd)
    lockless = head.get("locked") is False
    said = head.get("proc")
    return nothing._replace(
        held=held and not lockless,
        lockless=lockless,
        proc=said if isinstance(said, str) and said else proc,
    )
