"""Commands that read beside an exporter that compacts start over when it overtakes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mx_exporter
from mx_exporter.errors import MxError
from mx_exporter.offline import read_sources
from tests.support.commands import Run
from tests.support.folding import compact
from tests.support.simulated_loads import simulate


@pytest.fixture
def overtaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logs that are compacted when their second file is about to be opened."""
    for rank in range(3):
        simulate(["peer", "retry"], rank=rank).write(tmp_path)
    real, opened = read_sources.files, []

    def files(*given: Any) -> Any:
        opened.append(given)
        if len(opened) == 2:
            compact(tmp_path)
        return real(*given)

    monkeypatch.setattr(read_sources, "files", files)
    monkeypatch.setattr("mx_exporter.analysis.behind.files", files)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ("events",),
        ("loads", "--jobs", "1"),
        ("loads", "--json", "--jobs", "1"),
        ("trace", "--jobs", "1"),
        ("explain", "mx_load_seconds"),
    ],
)
def test_what_was_compacted_meanwhile_is_said_and_nothing_is_half(
    overtaken: Path, mx_metrics: Run, command: tuple[str, ...]
) -> None:
    code, out, err = mx_metrics(*command, overtaken)
    after = mx_metrics(*command, overtaken)
    assert (code, out, err) == after  # as if it had been compacted before
    assert code == 0
    assert "in a snapshot alone" in err
    assert "cannot be opened" not in err


def test_loads_from_python_are_not_short_in_silence(overtaken: Path) -> None:
    with pytest.raises(MxError, match="was compacted while it was read; begin again"):
        list(mx_exporter.timeline(str(overtaken), jobs=1))
    assert list(mx_exporter.timeline(str(overtaken), jobs=1)) == []
