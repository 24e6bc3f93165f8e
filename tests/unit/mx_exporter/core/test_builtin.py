"""The table of families that is built in."""

from __future__ import annotations

import pytest

from mx_exporter.core.builtin import BY_NAME, FAMILIES
from mx_log.schema import EVENTS


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_rows_of_the_table_are_sound(family):
    assert family.help
    assert family.help.endswith(".")
    assert all(event in EVENTS for event in family.events)
    assert "scheme" in family.label_names()
    assert list(family.buckets) == sorted(set(family.buckets))
    assert (family.type == "counter") == family.name.endswith("_total")
    for event in family.events:
        known = {field.name for field in EVENTS[event].fields} | {"scheme"}
        if family.field:
            assert family.field in known
        for label in family.labels:
            assert label.name in known or label.opt_in or label.name == "phase"


def test_the_table_is_the_one_that_was_agreed():
    assert len(BY_NAME) == len(FAMILIES) == 19
