"""The text of an option to its value."""

from __future__ import annotations

import pytest

from mx_exporter.option_values import parse_time, timestamp_of_now


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31", "2026-01-31T00:00:00.000000Z"),
        ("2026-01-31T12:00", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31 12:00:01Z", "2026-01-31T12:00:01.000000Z"),
        ("2026-01-31T12:00:01.123456789Z", "2026-01-31T12:00:01.123456Z"),
        ("2026-01-31T12:00:01,5+02:00", "2026-01-31T10:00:01.500000Z"),
        ("2026-01-31T12:00:01-0530", "2026-01-31T17:30:01.000000Z"),
        ("0001-01-01", "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_a_time(text: str, moment: str) -> None:
    assert parse_time(text) == moment


@pytest.mark.parametrize("text", ["0s", "2h", "-90m", "1d", "3w"])
def test_so_long_ago(text: str) -> None:
    assert parse_time(text) <= timestamp_of_now()


@pytest.mark.parametrize(
    "text",
    ["", "now", "1.5h", "2026-02-30", "2026-13-01", "2026-01-31T25:00", "2026-01-31T12:00:60Z",
     "99999999999d", "\uff12h", "2026-01-31T12:00+25:00"],
)  # fmt: skip
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="not a time; use 2026-01-31T12:00:00Z"):
        parse_time(text)
