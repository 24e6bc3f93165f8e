"""The diagnosis of a directory: its state, and likely causes."""

from __future__ import annotations

from pathlib import Path

from mx_exporter.config import Directory
from mx_exporter.directory.diagnosis import CAUSES, STATES, Diagnosis, diagnose


def state_of(path: Path, segments: int = 0, client_files: int = 0, trouble: str = "") -> Diagnosis:
    directory = Directory(str(path), named=True)
    return diagnose(directory, segments=segments, client_files=client_files, trouble=trouble)


def test_each_state_of_a_directory_is_diagnosed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert state_of(tmp_path, segments=1, client_files=1).state == "segments"
    assert state_of(tmp_path, client_files=1).state == "client_files"
    assert state_of(tmp_path).state == "empty"
    assert state_of(tmp_path, trouble="Permission denied").detail == "Permission denied"
    assert state_of(tmp_path, trouble="Permission denied").state == "unreadable"
    assert state_of(tmp_path / "none").state == "missing"
    assert state_of(file).state == state_of(file / "below").state == "not_a_directory"
    assert state_of(loop).state == "unreadable"
    assert "symbolic links" in state_of(loop).text


def test_every_state_but_the_good_one_has_causes() -> None:
    assert CAUSES.keys() == STATES.keys()
    assert [state for state in STATES if not CAUSES[state]] == ["segments"]
