"""The client's release is read from its installed metadata."""

from __future__ import annotations

import importlib.metadata

import pytest

from mx_emitter.context.client_release import client_version


@pytest.fixture(autouse=True)
def _asked_anew():
    client_version.cache_clear()
    yield
    client_version.cache_clear()


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("modelexpress-0.7.0.dist-info", "0.7.0"),
        ("modelexpress-0.8.0rc1+cu12.dist-info", "0.8.0rc1+cu12"),
        ("ModelExpress-0.6.0.dist-info", "0.6.0"),
        ("modelexpress-0.6.0-py3.11.egg-info", "0.6.0"),
    ],
)
def test_the_release_is_found(tmp_path, monkeypatch, name, release):
    (tmp_path / name).mkdir()
    (tmp_path / "modelexpress_extras-9.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert client_version() == release


def test_it_agrees_with_the_standard_library(tmp_path, monkeypatch):
    metadata = tmp_path / "modelexpress-0.7.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: modelexpress\nVersion: 0.7.0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert client_version() == importlib.metadata.version("modelexpress")


def test_without_a_client_it_is_unknown(tmp_path, monkeypatch):
    missing, archive = tmp_path / "missing", tmp_path / "archive.zip"
    archive.write_bytes(b"")
    monkeypatch.setattr("sys.path", [str(missing), str(archive), str(tmp_path), ""])
    monkeypatch.chdir(tmp_path)
    assert client_version() == "unknown"


def test_a_path_that_is_none_hurts_nobody(monkeypatch):
    monkeypatch.setattr("sys.path", [None, 3])
    assert client_version() == "unknown"
