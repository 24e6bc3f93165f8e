"""What an engine says of itself, as fields of the headers."""

from __future__ import annotations

from collections.abc import Mapping

from mx_log.schema import EVENTS, RESERVED_KEYS
from mx_log.values import well_formed
from mx_log.variables import IDENTITY

from ..settings import IDENTITY_CHARACTERS
from .encode import text

#: So many fields at most, and so many characters of a name: a header is short.
MOST_FIELDS, NAME_CHARACTERS = 16, 60

#: Keys of a header that are not the engine's to say.
_TAKEN = RESERVED_KEYS | {
    field.name for field in EVENTS["process_started"].fields if field.name not in IDENTITY
}


def said(fields: Mapping[str, object]) -> dict[str, str]:
    """The fields as text, cut where they are long. One of None says nothing; a name that is taken
    becomes ``field_<name>``. Raises nothing, but close to the recursion limit."""
    found: dict[str, str] = {}
    for given, value in fields.items():
        if value is None or len(found) == MOST_FIELDS:
            continue
        name = well_formed(text(given)[:NAME_CHARACTERS])
        found[f"field_{name}" if name in _TAKEN else name] = well_formed(
            text(value)[:IDENTITY_CHARACTERS]
        )
    return found
