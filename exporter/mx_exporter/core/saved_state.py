"""The file of a saved state: what one part of many logs gave, to be merged with the others.

It is sealed as a snapshot is, and holds what a snapshot holds, but for how far segments were read:
its state stands for events, and not for a directory that goes on.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from . import snapshot_content as content
from .catalog import Catalog
from .snapshot_codec import pack, unpack
from .snapshot_seal import BadSnapshot, damaged, seal, unseal
from .state import State

#: What is written.
FORMAT = 1

#: The format of snapshots whose content is in it.
_CONTENT = 2


class SavedState(NamedTuple):
    """A state, and what it is of."""

    state: State
    #: Timestamps of the window that was folded; empty: without a limit.
    since: str = ""
    until: str = ""
    #: Some of the logs could not be read to their end.
    short: bool = False


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """What is in the file."""

    state: int
    since: str
    until: str
    short: bool
    content: msgspec.Raw


class _Number(msgspec.Struct):
    """What every format says."""

    state: int


_number = msgspec.json.Decoder(_Number).decode
_file = msgspec.json.Decoder(_File).decode


def dump(catalog: Catalog, saved: SavedState) -> bytes:
    """A state as it lies in its file.

    :raises BadSnapshot: it would be too large to be read back.
    """
    packed = content.encode(pack(catalog, saved.state, {}))
    file = _File(FORMAT, saved.since, saved.until, saved.short, msgspec.Raw(packed))
    return seal(msgspec.json.encode(file))


def load(catalog: Catalog, data: bytes) -> SavedState:
    """Read a state back.

    :raises BadSnapshot: it is damaged, no state, of a newer format, or was derived with another
        table of families.
    """
    file = _opened(data)
    packed = content.decode(bytes(file.content), _CONTENT)
    others = {family.name: family.fingerprint for family in catalog.families}
    theirs = {name: tables.table for name, tables in packed.families.items()}
    differing = sorted(
        name for name in others.keys() | theirs.keys() if others.get(name) != theirs.get(name)
    )
    if differing:
        more = f" and {len(differing) - 1} more" if differing[1:] else ""
        raise BadSnapshot(
            f"was derived with another table of families, in which {differing[0]}{more} "
            f"{'differ' if more else 'differs'}: merge it with the release, --catalog and "
            "--buckets that it was made with, or make it anew"
        )
    return SavedState(unpack(catalog, packed).state, file.since, file.until, file.short)


def _opened(data: bytes) -> _File:
    try:
        _, inner = unseal(data)
    except BadSnapshot as error:
        raise BadSnapshot(f"{error}; or it is no state that --save-state wrote") from None
    try:
        given = _number(inner).state
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise BadSnapshot("is no state that --save-state wrote") from None
    if given > FORMAT:
        raise BadSnapshot(
            f"is a state of format {given}, of a newer release; this one reads formats up to "
            f"{FORMAT}"
        )
    try:
        return _file(inner)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise damaged(error) from None
