"""What there is where no event was found, so that nobody takes an empty page for a true one."""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

from mx_log.files import is_ours
from mx_log.words import counted

from ..errors import MxError
from .inputs import SnapshotInput
from .local import STDIN
from .sources import Directory, Found, ours_in
from .stores import shown
from .tally import Tally

#: Names that are shown.
_SHOWN = 3

#: Names of a directory that are looked at.
_LOOKED_AT = 10_000


def without_events(
    found: Found, snapshots: list[SnapshotInput], tallies: Mapping[str, Tally]
) -> Iterator[str]:
    """A line for each argument that names no event although it names something: a directory
    without segments, lines none of which is an event.

    :param tallies: what the lines of each argument were.
    """
    stand_for = {given.source.argument for given in snapshots}
    some = any(tally.events for tally in tallies.values())
    directories = {directory.path: directory for directory in found.directories}
    for argument in found.arguments:
        tally = tallies.get(argument, Tally())
        if argument in stand_for or tally.events:
            continue
        name = "standard input" if argument == STDIN else shown(argument)
        if tally.rejected and some:
            continue  # each is told of as a fault, or what it says is known by another line
        if tally.lines:
            yield f"{name}: {_of(tally)}"
        elif argument in directories and not any(_segments_in(directories[argument])):
            yield _of_directory(directories[argument])


def _of(tally: Tally) -> str:
    if tally.lines == 1:
        told = "1 line, which is no event"
    else:
        told = f"{tally.lines} lines, none an event"
    if tally.foreign:
        told += f"; the first is {tally.shown}" if tally.lines > 1 else f": {tally.shown}"
    return told


def _segments_in(directory: Directory) -> Iterator[object]:
    try:
        yield from ours_in(directory)
    except MxError:
        return


def _of_directory(directory: Directory) -> str:
    nothing = (
        f"{shown(directory.path)}: no segments there (events-<12 hex digits>-<number>.jsonl, plain "
        "or compressed)"
    )
    names, directories = [], 0
    try:
        for entry in islice(directory.store.entries(directory.path), _LOOKED_AT):
            if entry.is_directory:
                directories += 1
            elif not is_ours(entry.name):
                names.append(entry.name)
    except MxError as error:
        return str(error)
    told = []
    endings = Counter(os.path.splitext(name)[1] for name in names)
    client = endings.pop(".db", 0)
    if client:
        told.append(counted(client, ".db file of the client", ".db files of the client"))
    others = sorted(name for name in names if not name.endswith(".db"))
    if others:
        some = ", ".join(map(shown, others[:_SHOWN])) + (", ..." if others[_SHOWN:] else "")
        told.append(f"{counted(len(others), 'other file')}: {some}")
    if directories:
        told.append(counted(directories, "directory", "directories"))
    if not told:
        return f"{nothing}, and nothing else"
    advice = f"; to read other files name them: '{shown(os.path.join(directory.path, '*'))}'"
    return f"{nothing}, but {' and '.join(told)}" + (advice if others else "")
