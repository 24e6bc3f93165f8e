"""The file of a saved state: it gives back what it was made of, or says why it does not."""

from __future__ import annotations

import orjson
import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import Catalog
from mx_exporter.core.saved_state import SavedState, dump, load
from mx_exporter.core.snapshot_seal import BadSnapshot, seal, unseal
from mx_exporter.core.state import State
from tests.support.folding import some_state, whole_page


@pytest.mark.parametrize(
    "said", [(), ("2026-01-01T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z", True)]
)
def test_what_is_saved_is_read_back(said: tuple[str, str, bool]) -> None:
    saved = SavedState(some_state(), *said)
    found = load(CATALOG, dump(CATALOG, saved))
    assert found[1:] == (said or ("", "", False))
    assert whole_page(found.state) == whole_page(saved.state)


def content(data: bytes) -> dict[str, object]:
    found: dict[str, object] = orjson.loads(unseal(data)[1])
    return found


def sealed(**keys: object) -> bytes:
    return seal(orjson.dumps(content(dump(CATALOG, SavedState(State(CATALOG)))) | keys))


def test_a_file_says_its_format() -> None:
    assert content(dump(CATALOG, SavedState(some_state())))["state"] == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"something else", "or it is no state that --save-state wrote"),
        (seal(b"[]"), "is no state that --save-state wrote"),
        (seal(b'{"segments":{}}'), "is no state that --save-state wrote"),
        (seal(b'{"state":"1"}'), "is no state that --save-state wrote"),
        (seal(b'{"state":1}'), "is damaged"),
        (seal(b'{"state":2}'), "is a state of format 2, of a newer release; this one reads"),
        (sealed(more=1), "is damaged"),
        (sealed(since=None), "is damaged"),
    ],
)
def test_what_is_no_state_is_said(data: bytes, why: str) -> None:
    with pytest.raises(BadSnapshot, match=why):
        load(CATALOG, data)


@pytest.mark.parametrize(
    ("without", "why"),
    [
        (1, f"in which {CATALOG.families[0].name} differs: "),
        (2, " and 1 more differ: "),
        (3, " and 2 more differ: "),
    ],
)
def test_a_state_of_other_families_names_one_and_how_many_differ(without: int, why: str) -> None:
    """Whether they are in the file or not."""
    fewer = Catalog(CATALOG.events.values(), CATALOG.families[without:])
    for theirs, ours in ((fewer, CATALOG), (CATALOG, fewer)):
        with pytest.raises(BadSnapshot, match=why):
            load(ours, dump(theirs, SavedState(State(theirs))))
