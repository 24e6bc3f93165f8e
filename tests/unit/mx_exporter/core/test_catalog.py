"""The catalogue: what a family's row says of its labels, and what tells events apart."""

from __future__ import annotations

import dataclasses
import pickle

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.catalog import Catalog
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
