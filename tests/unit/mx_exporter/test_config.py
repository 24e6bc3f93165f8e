"""Flags, variables and defaults, and the messages for bad values."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mx_exporter.config import (
    OPTIONS,
    Directory,
    Listen,
    Settings,
    read_settings,
    resolve_directory,
)
from mx_exporter.errors import UsageError


def test_defaults() -> None:
    settings = read_settings({}, {})
    assert settings == Settings()
    assert settings.directory == Directory("/tmp/mx-metrics", named=False)
    assert settings.endpoint == Listen(None, 9402)
    assert settings.max_series == 10_000
    assert settings.max_bytes == 32 * 1024 * 1024
    assert settings.retain_bytes == 16 * 1024 * 1024
    assert settings.bind_retry_secs == 15
    assert settings.source_id_label is False


def test_flag_goes_before_variable_goes_before_default() -> None:
    environ = {"MX_METRICS_MAX_SERIES": "7"}
    assert read_settings({"max_series": "5"}, environ).max_series == 5
    assert read_settings({"max_series": None}, environ).max_series == 7
    assert read_settings({"source_id_label": False}, {"MX_METRICS_SOURCE_ID_LABEL": "1"}) == (
        Settings()
    )


def test_blank_variables_are_unset() -> None:
    environ = {row.variable: " \t" for row in OPTIONS.values() if row.variable}
    assert len(environ) == 20
    assert read_settings({}, environ) == Settings()


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("127.0.0.1:9402", Listen("127.0.0.1", 9402)),
        ("[::1]:9402", Listen("::1", 9402)),
        ("localhost:80", Listen("localhost", 80)),
        (":9402", Listen(None, 9402)),
        (" :9402 ", Listen(None, 9402)),
        ("127.0.0.1:0", None),
        ("127.0.0.1:-1", None),
    ],
)
def test_listen(text: str, listen: Listen | None) -> None:
    # It wins over the variable, a port that means no endpoint too.
    assert read_settings({"listen": text}, {"MX_METRICS_PORT": "1"}).endpoint == listen


@pytest.mark.parametrize(
    "text", ["9402", "host", "::1:9402", "[::1]", "host:", "host:x", "host:65536", "a:1:2", "[]:1"]
)
def test_listen_that_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match=r"--listen: bad value .*: expected "):
        read_settings({"listen": text}, {})


@pytest.mark.parametrize(("text", "port"), [("1", 1), ("+80", 80), ("65535", 65535)])
def test_port(text: str, port: int) -> None:
    assert read_settings({}, {"MX_METRICS_PORT": text}).endpoint == Listen(None, port)


@pytest.mark.parametrize("text", ["0", "-1", "-9402"])
def test_port_that_means_no_endpoint(text: str) -> None:
    assert read_settings({}, {"MX_METRICS_PORT": text}).endpoint is None


@pytest.mark.parametrize(
    "text", ["http", "9402/tcp", "65536", "94_02", "9.4", "٩٤٠٢", "9" * 400, "0x10"]
)
def test_port_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"MX_METRICS_PORT: bad value .*: expected a port"):
        read_settings({}, {"MX_METRICS_PORT": text})


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("MX_METRICS_MAX_SERIES", "0"),
        ("MX_METRICS_MAX_SERIES", "many"),
        ("MX_METRICS_MAX_BYTES", "1MiB"),
        ("MX_METRICS_RETAIN_BYTES", "-5"),
        ("MX_METRICS_SOURCE_ID_LABEL", "maybe"),
        ("MX_METRICS_DIR", "a\0b"),
    ],
)
def test_bad_values_name_their_variable(variable: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"^{variable}: bad value ") as caught:
        read_settings({}, {variable: text})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("2.5", 2.5),
        ("1", 1.0),
        ("0", 1.0),
        ("-3", 1.0),
        *((junk, 15.0) for junk in ("soon", "nan", "inf", "-inf", "1e999")),
    ],
)
def test_bind_retry_never_fails(text: str, seconds: float) -> None:
    assert read_settings({}, {"MX_METRICS_BIND_RETRY_SECS": text}).bind_retry_secs == seconds


@pytest.mark.parametrize("text", ["1", "true", "YES", " on "])
def test_switches(text: str) -> None:
    assert read_settings({}, {"MX_METRICS_SOURCE_ID_LABEL": text}).source_id_label is True
    with pytest.raises(UsageError):
        read_settings({}, {"MX_METRICS_SOURCE_ID_LABEL": f"{text}!"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [("True", False), ("1", False), ("t", False), ("0", True), ("yes", True), ("", True)],
)
def test_creation_times_are_shown_where_the_client_library_would(text: str, shown: bool) -> None:
    environ = {"PROMETHEUS_DISABLE_CREATED_SERIES": text}
    assert read_settings({}, environ).created_series is shown


def test_an_option_that_is_not_read_is_not_validated() -> None:
    environ = {"MX_METRICS_PORT": "x", "MX_METRICS_DIR": " /a b "}
    assert resolve_directory(None, environ) == Directory("/a b", named=True)
    assert resolve_directory("/flag", environ) == Directory("/flag", named=True)
    assert resolve_directory(None, {}) == Directory("/tmp/mx-metrics", named=False)


def test_each_option_has_a_flag_or_variable_and_a_help_text() -> None:
    for row in OPTIONS.values():
        assert row.flag or row.variable
        assert row.help.endswith(".")
        assert row.shown


# --------------------------------------------------------------------------------------
# The default directory's rule


def test_a_named_directory_is_used_as_it_is(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert Directory(str(link), named=True).objection() is None


def test_the_default_is_used_while_it_is_a_real_directory_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "default"
    default = Directory(str(path), named=False)
    assert default.objection() is None  # not there yet

    path.mkdir()
    assert default.objection() is None

    path.rmdir()
    path.symlink_to(tmp_path)
    assert default.objection() == "is a symbolic link"

    path.unlink()
    path.write_text("")
    assert default.objection() == "is not a directory"


def test_the_default_of_another_user_is_not_used(tmp_path: Path) -> None:
    path, owner = tmp_path, 4321
    if os.geteuid() == 0:
        os.chown(path, owner, -1)
    else:
        path, owner = Path("/"), 0
    objection = Directory(str(path), named=False).objection()
    assert objection == f"belongs to uid {owner}, and this is uid {os.geteuid()}"


def test_an_archive_that_cannot_be_one(tmp_path: Path) -> None:
    """By a flag or a variable, which the message names; a command that must go on has none."""
    (tmp_path / "file").touch()
    environ = {"MX_METRICS_DIR": str(tmp_path)}
    for archive in (tmp_path, tmp_path / ".", tmp_path / "file", tmp_path / "none"):
        by_variable = {**environ, "MX_METRICS_ARCHIVE_DIR": str(archive)}
        with pytest.raises(UsageError, match=r"^--archive-dir: "):
            read_settings({"archive_dir": str(archive)}, environ)
        with pytest.raises(UsageError, match=r"^MX_METRICS_ARCHIVE_DIR: "):
            read_settings({}, by_variable)
        said: list[str] = []
        settings = read_settings({}, by_variable, tolerate=said.append)
        assert settings.archive_dir is None
        assert len(said) == 1
        assert said[0].startswith("MX_METRICS_ARCHIVE_DIR: ")
        # What was typed is a mistake of somebody who is there to mend it.
        with pytest.raises(UsageError):
            read_settings({"archive_dir": str(archive)}, environ, tolerate=said.append)
