"""The catalogue: what a family's row says of its labels, and what tells events apart."""

from __future__ import annotations

import dataclasses
import pickle
from types import SimpleNamespace

import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import (
    DROP,
    RECORDER_CALLED,
    Catalog,
    Label,
    Value,
    as_text,
    find,
)
from mx_log.schema import EVENTS

SELECTIONS = CATALOG.by_name["mx_p2p_source_selections_total"]


def test_labels_that_are_asked_for_show_only_then():
    assert SELECTIONS.label_names() == ("policy", "scheme")
    assert [label.name for label in SELECTIONS.shown()] == ["policy", "scheme"]
    assert SELECTIONS.label_names(opt_in=True) == ("policy", "scheme", "source_worker_id")


def test_another_label_makes_another_fingerprint_also_one_that_shows_when_asked_for():
    fewer = dataclasses.replace(SELECTIONS, labels=SELECTIONS.shown())
    assert fewer.fingerprint != SELECTIONS.fingerprint


def test_events_are_told_apart_by_text_alone():
    """A number that has a label's name would give each event a handler of its own."""
    seconds = SELECTIONS.labels[0]._replace(name="seconds")
    labelled = dataclasses.replace(SELECTIONS, labels=(seconds,))
    catalog = Catalog([EVENTS["sources_ordered"]], [*CATALOG.families, labelled])
    assert catalog.keys["sources_ordered"] == CATALOG.keys["sources_ordered"]


def test_a_catalogue_can_be_sent_to_another_process():
    again = pickle.loads(pickle.dumps(CATALOG))
    assert again.families == CATALOG.families
    assert again.events == CATALOG.events
    assert again.keys == CATALOG.keys


CALL = SimpleNamespace(
    scheme="",
    recorder="mark",
    event_name="x",
    args=["ssd", 4],
    kwargs={"tier": None, "deep": {"a": 1}},
)


@pytest.mark.parametrize(
    ("paths", "value"),
    [
        ((("args", 0),), "ssd"),
        ((("kwargs", "deep", "a"),), 1),
        ((("kwargs", "tier"), ("args", 1)), 4),  # null leads nowhere
        ((("args", 7), ("kwargs", "none"), ("recorder", "of", "text"), ("nothing",)), None),
        ((("nothing",), ("recorder",)), "mark"),
        ((), None),
    ],
)
def test_the_first_path_that_leads_somewhere_gives_the_value(paths, value):
    assert find(CALL, paths) == value


@pytest.mark.parametrize(
    ("logged", "text"),
    [("ssd", "ssd"), ("", ""), (True, "true"), (False, "false"), (4, "4"), (0.5, "0.5")]
    + [(other, None) for other in (None, [], {"a": 1}, ["ssd"])],
)
def test_labels_are_text_of_text_truth_and_numbers(logged, text):
    assert as_text(logged) == text


def test_a_label_is_read_from_its_field_or_by_its_paths():
    assert Label("recorder", "").read(CALL) == "mark"
    assert Label("nothing", "").read(CALL) is None
    assert Label("recorder", "", paths=(("args", 1),)).read(CALL) == "4"


KNOWN = (Value("a", ""), Value("b", ""))


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        (Label("l", ""), {"a": "a", " x ": " x ", "": "", None: "", "\0": "\ufffd"}),
        (Label("l", "", null="none"), {"": "", None: "none"}),
        (Label("l", "", max_length=2, null="none"), {" abc": "ab", " ": "none", None: "none"}),
        (Label("l", "", KNOWN), {"a": "a", "x": "x", None: ""}),
        (Label("l", "", KNOWN, DROP), {"a": "a", "x": None, None: None}),
        (Label("l", "", KNOWN, "other", null="b"), {"a": "a", "x": "other", None: "b"}),
    ],
)
def test_what_becomes_of_a_labels_value(label, shown):
    assert {value: label.resolve(value) for value in shown} == shown


def own(*labels: Label, event: str = RECORDER_CALLED) -> Catalog:
    family = dataclasses.replace(SELECTIONS, name="own_total", labels=labels, events=(event,))
    return Catalog(EVENTS.values(), [*CATALOG.families, family])


def test_what_tells_events_apart():
    tier = Label("tier", "", paths=(("args", 0),))
    plain = CATALOG.key_of(RECORDER_CALLED)(CALL)
    assert plain == ("", "mark")
    assert own(tier).key_of(RECORDER_CALLED)(CALL) == ("", "mark", "ssd")
    # A label of two families is read once, and of another event's family not at all.
    assert own(tier, tier).key_of(RECORDER_CALLED)(CALL) == ("", "mark", "ssd")
    assert own(tier, event="source_attempted").key_of(RECORDER_CALLED)(CALL) == plain
    # One field alone, and a label beside it.
    started = own(tier, event="log_recorded").key_of("log_recorded")
    assert started(CALL) == ("", "ssd")
    assert CATALOG.key_of("log_recorded")(CALL) == ""


def test_how_a_familys_value_is_read():
    by_field = CATALOG.by_name["mx_p2p_transfer_seconds"]
    assert by_field.value_of()(SimpleNamespace(seconds=2.5)) == 2.5
    by_path = dataclasses.replace(by_field, field="", paths=(("args", 1),))
    assert by_path.value_of()(CALL) == 4


def test_another_way_to_derive_it_is_another_fingerprint_of_an_own_family_alone():
    family = CATALOG.by_name["mx_p2p_transfer_seconds"]
    for change in ({"field": "count"}, {"recorder": "mark"}, {"events": ("other",)}):
        assert dataclasses.replace(family, **change).fingerprint == family.fingerprint
        mine = dataclasses.replace(family, own=True)
        assert dataclasses.replace(mine, **change).fingerprint != mine.fingerprint
    assert dataclasses.replace(family, own=True).fingerprint != family.fingerprint
    assert dataclasses.replace(family, buckets=(1.0,)).fingerprint != family.fingerprint


def test_other_boundaries_of_the_histograms_that_are_named():
    other = CATALOG.with_buckets({"mx_p2p_transfer_seconds": (1.0, 2.0)})
    assert other.by_name["mx_p2p_transfer_seconds"].buckets == (1.0, 2.0)
    assert [family.name for family in other.families] == list(CATALOG.by_name)
    same = [each for each in other.families if each.name != "mx_p2p_transfer_seconds"]
    assert same == [each for each in CATALOG.families if each.name != "mx_p2p_transfer_seconds"]
    assert other.events == CATALOG.events
