"""Files of families: what they may say, and what is said of those that are wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_exporter.cli.main import main
from mx_exporter.core.builtin import CATALOG, FAMILIES
from mx_exporter.errors import MxError, UsageError
from mx_exporter.tables.read import catalog_of, extended, read_families
from mx_exporter.tables.write import toml

COUNTER = """
[[family]]
name = "x_total"
type = "counter"
help = "h"
event = "e"
"""

HISTOGRAM = """
[[family]]
name = "x"
type = "histogram"
help = "h"
event = "e"
value = "v"
buckets = [1]
"""

LABEL = """
[[family.labels]]
name = "l"
"""

CALL = COUNTER.replace('event = "e"', 'recorder = "r"')


def test_the_built_in_table_is_read_back_as_it_is() -> None:
    read = read_families("f", toml(FAMILIES).encode())
    assert [dataclasses.replace(family, own=False) for family in read] == list(FAMILIES)
    with pytest.raises(UsageError, match=r"^f, family mx_build_info, name: mx_build_info has"):
        extended("f", read)


def test_own_families_are_read_back_as_they_are() -> None:
    text = "\n".join(
        [
            HISTOGRAM + LABEL + 'field = "rank"\nvalues = ["", "a \\"b\\" \\u007f"]\n',
            CALL.replace("x_", "y_") + 'value = {argument = 2, keyword = "s"}' + LABEL,
            CALL.replace("x_", "z_") + LABEL + "argument = 1\nmax_length = 3\nmissing='-'",
        ]
    )
    families = read_families("f", text.encode())
    assert read_families("f", toml(families).encode()) == families
    catalog = extended("f", families)
    again = pickle.loads(pickle.dumps(catalog))
    assert again.families == catalog.families
    assert again.key_of("e") is not None
    assert CATALOG.decoder.types["load_started"] is again.decoder.types["load_started"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[family]", "f: no TOML: "),
        ("a = 1", "f, a: no such key here"),
        ("family = 1", "f, family: expected an array"),
        ("family = [1]", "f, family: expected tables"),
        ("[[family]]", "f, family 1, name: missing"),
        ("[[family]]\nname = 1", "f, family 1, name: expected text"),
        (COUNTER.replace("counter", "summary"), "f, family 1 (x_total), type: expected counter, "),
        (COUNTER.replace("x_total", "x"), "f, family 1 (x), name: a counter's ends in _total"),
        (HISTOGRAM.replace('"x"', '"x_total"'), "(x_total), name: a counter's ends in _total"),
        (HISTOGRAM.replace('"x"', '"x_count"'), "(x_count), name: such an end is of the samples"),
        (HISTOGRAM.replace('"x"', '"é"'), "name: expected letters, digits, _ and :"),
        (COUNTER.replace("x_", "mx_exporter_x_"), "name: such names are of what the exporter says"),
        (COUNTER.replace("x_", "process_x_"), "name: such names are of what the exporter says"),
        (COUNTER.replace('help = "h"', 'help = "\\u0000"'), "help: a zero byte ends a page"),
        (COUNTER.replace('event = "e"', ""), "event: expected the name of an event, or a recorder"),
        (COUNTER.replace('"e"', '""'), "event: expected the name of an event, or a recorder"),
        (COUNTER.replace('event = "e"', 'events = ["e", "e"]'), "events: expected each once"),
        (COUNTER.replace('event = "e"', "events = [1]"), "events: expected an array of texts"),
        (COUNTER.replace('"e"', '"recorder_called"'), "event: calls are told apart by their rec"),
        (COUNTER + 'recorder = "r"', "(x_total), event: no such key here"),
        (COUNTER + 'zeros = "all"', "zeros: expected header or policy"),
        (COUNTER + 'zeros = "header"' + LABEL, "zeros: the label l has no values that are known"),
        (COUNTER + 'loads = "all"', "loads: expected 'in progress' or 'abandoned'"),
        (COUNTER + 'loads = "in progress"', "type: expected gauge"),
        (COUNTER + 'loads = "abandoned"', "events: expected load_finished, load_phase_finished, "),
        (COUNTER + 'loads = "abandoned"\nvalue = "v"', "value: loads are counted, and have none"),
        (HISTOGRAM.replace('value = "v"', ""), "f, family 1 (x), value: missing"),
        (HISTOGRAM.replace('"v"', "1"), "value: expected the name of a field"),
        (HISTOGRAM.replace('"v"', '"a b"'), "value: 'a b' is no name of a field"),
        (HISTOGRAM.replace('"v"', '"seq"'), "value: seq differs between any two events"),
        (HISTOGRAM.replace('"e"', '"load_finished"'), "value: load_finished has no field v; it h"),
        (HISTOGRAM.replace("[1]", "[]"), "buckets: expected numbers"),
        (HISTOGRAM.replace("[1]", "[true]"), "buckets: expected numbers"),
        (HISTOGRAM.replace("[1]", "[2, 2]"), "buckets: expected ascending numbers"),
        (HISTOGRAM.replace("[1]", "[inf]"), "buckets: expected finite numbers"),
        (HISTOGRAM.replace("[1]", f"[1{'0' * 400}]"), "buckets: expected finite numbers"),
        (COUNTER + "buckets = [1]", "(x_total), buckets: no such key here"),
        (CALL + 'value = "s"', "value: expected { argument = N, keyword = 'name' }"),
        (CALL + "value = {}", "value: expected an argument or a keyword"),
        (CALL + "value = { at = 1 }", "f, family 1 (x_total), value, at: no such key here"),
        (CALL + "value = { argument = -1 }", "value, argument: expected a position, from 0"),
        (CALL + "value = { argument = true }", "value, argument: expected a whole number"),
        (COUNTER + LABEL + "a = 1", "f, family 1 (x_total), label 1 (l), a: no such key here"),
        (COUNTER + LABEL + LABEL, "labels: expected names that differ"),
        (COUNTER + LABEL.replace('"l"', '"__l"'), "name: expected letters, digits and _"),
        (COUNTER + LABEL.replace('"l"', '"l:"'), "name: expected letters, digits and _"),
        (HISTOGRAM + LABEL.replace('"l"', '"le"'), "name: a histogram has its boundaries under le"),
        (COUNTER + LABEL + "values = []", "values: expected texts, or a table of texts"),
        (COUNTER + LABEL + "values = [1]", "values: expected texts, or a table of texts"),
        (COUNTER + LABEL + 'values = ["\\u0000"]', "values: a zero byte ends a page"),
        (COUNTER + LABEL + 'unexpected = "o"', "unexpected: expected one of the values"),
        (COUNTER + LABEL + "drop_unexpected = true", "drop_unexpected: expected values, and no"),
        (COUNTER + LABEL + "max_length = -1", "max_length: expected a number above 0"),
        (COUNTER + LABEL + "max_length = 0", "max_length: expected a number above 0"),
        (COUNTER + 'value = "v"' + LABEL + "opt_in = true", "opt_in: only a counter of events can"),
        (COUNTER + LABEL + "argument = 1", "label 1 (l), argument: no such key here"),
        (CALL + LABEL + 'field = "kind"', "field: a call has scheme, level, load_id, proc, rank"),
        (COUNTER.replace("x_", "mx_nixl_receive_"), "name: mx_nixl_receive_total has samples call"),
        (COUNTER + COUNTER, "f, family x_total, name: x_total has samples called x as well"),
        (HISTOGRAM + COUNTER, "f, family x_total, name: x has samples called x as well"),
        (
            HISTOGRAM.replace('"x"', '"mx_load_seconds"'),
            "f, family mx_load_seconds, name: mx_load_seconds has samples called mx_load_seconds",
        ),
    ],
)
def test_what_is_wrong_is_said_with_table_and_key(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        extended("f", read_families("f", text.encode()))
    assert said in str(error.value)


def test_a_file_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MxError, match="the catalogue cannot be read: No such file"):
        catalog_of(str(tmp_path / "none"))
    (tmp_path / "f").write_bytes(b"\xff")
    assert main(["check", "--catalog", str(tmp_path / "f")]) == 2
    assert f"mx-metrics: {tmp_path}/f: no TOML: " in capsys.readouterr().err


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(str(k))} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return (
            '"'
            + "".join(f"\\U{ord(c):08x}" for c in value if not 0xD800 <= ord(c) < 0xE000)
            + ('"')
        )
    return "0" if value is None else repr(value)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "name",
                "type",
                "help",
                "event",
                "events",
                "recorder",
                "value",
                "buckets",
                "zeros",
                "since",
                "loads",
                "labels",
            ]
        ),
        _VALUES
        | st.sampled_from(["x_total", "counter", "gauge", "e", "load_finished", "seconds", "__"]),
    )
)
def test_no_file_is_more_than_refused(table: dict[str, object]) -> None:
    text = "[[family]]\n" + "".join(f"{key} = {_toml(each)}\n" for key, each in table.items())
    with contextlib.suppress(UsageError):
        families = read_families("f", text.encode())
        assert read_families("f", toml(families).encode()) == families
