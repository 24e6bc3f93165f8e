"""The status page, the log and the gauge explain why there is nothing to show."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mx_exporter.config import Directory, Listen, Settings
from mx_exporter.directory.diagnosis import STATES, Diagnosis
from mx_exporter.pages import status
from mx_log.schema import VERSION
from tests import support
from tests.support import serving
from tests.support.html import Page


def read(exporter: serving.Exporter, path: str = "/") -> Page:
    answer = exporter.get(path)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    return Page(answer.text)


def test_all_is_well(spawn: support.Spawner, tmp_path: Path) -> None:
    os.utime(serving.attempts(tmp_path, 3), (1, 1))
    exporter = serving.start(spawn, tmp_path)
    for path in ("/", "/status"):
        shown = read(exporter, path)
        assert {"/metrics", "/loads.json"} < set(shown.links)
        assert all(exporter.get(link).status == 200 for link in shown.links)
        assert not shown.tags & {"script", "link", "img", "iframe"}
        assert VERSION in shown.text
        assert str(tmp_path) in shown.text
        assert "likeliest causes" not in shown.text
        assert "too low" not in shown.text
        assert "not whole" not in shown.text
        assert "archives" not in shown.text
    for expected in ("has segments", "events logged", "0 alive, 1 gone", "roleowner (compacts)"):
        assert expected in shown.text
    assert "No load was logged yet." in read(exporter).text


def test_what_the_log_lacks_is_said_in_front(spawn: support.Spawner, tmp_path: Path) -> None:
    log = support.Lines()
    lines = [log.header(0), log("source_attempted", policy="p", result="success"), b"{]\n"]
    log.seq += 2
    lines.append(log("source_attempted", policy="p", result="success"))
    (tmp_path / f"events-{log.proc}-0.jsonl").write_bytes(b"".join(lines))
    exporter = serving.start(spawn, tmp_path)
    for path in ("/", "/status"):
        shown = read(exporter, path)
        assert "The log is not whole" in shown.text
        assert "2 events are lost, 1 line was rejected" in shown.text
        assert f"mx-metrics check {tmp_path}" in shown.text


def test_settings_in_use_are_shown_without_a_password() -> None:
    settings = Settings(
        Directory("/logs", named=True),
        Listen(None, 9402),
        tee=True,
        pushgateway="https://ann:secret@push.example:9091/x",
    )
    standing = status.Standing(lambda: Diagnosis("/logs", "segments"), None, settings)
    shown = Page(status.page(standing, _must_not_fail).decode()).text
    for name, value in (
        ("--dir", "/logs"),
        ("--tee", "on"),
        ("--listen", "*:9402"),
        ("--source-id-label", "off"),
        ("--pushgateway", "https://push.example:9091/x"),
        ("--archive-dir", "none"),
    ):
        assert name + value in shown
    assert "secret" not in shown


def test_the_status_page_of_a_damaged_snapshot(spawn: support.Spawner, tmp_path: Path) -> None:
    serving.attempts(tmp_path, 3)
    (tmp_path / "mx-metrics.snapshot").write_text("{")
    exporter = serving.start(spawn, tmp_path)
    shown = read(exporter)
    assert "The totals are too low" in shown.text
    assert "mx-metrics.snapshot is damaged" in shown.text
    assert exporter.get().sample("mx_exporter_snapshot_trouble") == 1


def test_a_directory_that_cannot_be_opened(spawn: support.Spawner, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    shown = read(serving.start(spawn, loop))
    assert "waiting: there is no directory that can be opened (Too many levels" in shown.text


def test_a_directory_that_was_compacted_whole_is_not_empty(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    serving.attempts(tmp_path, 3)
    env = {"MX_METRICS_RETAIN_BYTES": "1"}
    exporter = serving.start(spawn, tmp_path, "--retain-seconds", "0", env=env)
    support.wait_until(lambda: exporter.get() and not list(tmp_path.glob("events-*.jsonl")))
    assert exporter.get().sample('mx_exporter_directory_state{state="segments"}') == 1
    assert "likeliest causes" not in read(exporter).text
    # What it read itself it still lists; whoever comes after it knows the snapshot alone.
    assert "stands for" not in read(exporter).text
    exporter.process.terminate()
    assert exporter.process.result() == 0
    text = read(serving.start(spawn, tmp_path)).text
    assert "A snapshot stands for 4 events: the metrics count them" in text


def test_the_status_page_of_a_missing_directory(spawn: support.Spawner, tmp_path: Path) -> None:
    (tmp_path / "secret.<b>&").write_text("")
    exporter = serving.start(spawn, tmp_path)
    shown = read(exporter)
    for expected in (
        *(str(tmp_path), "has no segment", "events-<12 hex digits>-<n>.jsonl"),
        # What somebody lacks who installed the exporter alone.
        "Install mx-metrics in the engine's own Python as well",
        *("MX_METRICS_ENABLED=1", "MX_METRICS_DIR", "python -m mx_emitter"),
        *(f"uid {os.geteuid()}", "drwx", "1 .<b>&"),
    ):
        assert expected in shown.text, expected
    assert "b" not in shown.tags
    assert "secret" not in shown.text
    assert exporter.get().sample('mx_exporter_directory_state{state="empty"}') == 1
    support.wait_until(lambda: "nothing to show" in exporter.log)
    assert f"{tmp_path} [drwx" in exporter.log
    assert "has no segment; looking for events-" in exporter.log


def test_the_status_page_names_the_clients_own_files(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    (tmp_path / "counter_17.db").write_bytes(b"")
    exporter = serving.start(spawn, tmp_path)
    shown = read(exporter)
    assert "has .db files of the client's multiprocess mode" in shown.text
    assert "nothing routes its recorders to the log" in shown.text
    assert exporter.get().sample('mx_exporter_directory_state{state="client_files"}') == 1
    assert "has .db files" in exporter.log
    # Told once a state, not once a drain.
    serving.attempts(tmp_path, 1)
    assert exporter.get().sample('mx_exporter_directory_state{state="segments"}') == 1
    assert exporter.log.count("nothing to show") == exporter.log.count("found 1 segment") == 1


def test_the_default_directory_of_somebody_else_is_not_read(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    """The default's path is put elsewhere, since /tmp is everybody's."""
    serving.attempts(tmp_path, 3)
    link = tmp_path / "default"
    link.symlink_to(tmp_path)
    port = support.free_port()
    code = (
        "import sys\n"
        "from mx_log import files\n"
        f"files.DEFAULT_DIRECTORY = {str(link)!r}\n"
        "from mx_exporter.cli import main as cli\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    process = spawn.python("-c", code, "serve", "--listen", f"127.0.0.1:{port}")
    exporter = serving.Exporter(process, "127.0.0.1", port)
    support.wait_until(exporter.ready)
    scraped = exporter.get()
    assert scraped.sample('mx_exporter_directory_state{state="refused"}') == 1
    assert scraped.sample("mx_exporter_read_bytes_total") == 0
    shown = read(exporter)
    assert "it is a symbolic link" in shown.text
    assert "real directory of our own user" in shown.text
    link.unlink()
    link.mkdir()
    serving.attempts(link, 2)
    assert exporter.get().sample("mx_exporter_events_logged_total") == 3


def test_a_label_that_grows_without_end_is_warned_of(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    support.Lines().segment(
        tmp_path, 0, [("source_selected", {"policy": "p", "source_worker_id": "w"})]
    )
    name = 'mx_p2p_source_selections_total{policy="p",scheme="",source_worker_id="w"}'
    exporter = serving.start(spawn, tmp_path, "--source-id-label")
    assert exporter.get().sample(name) == 1
    assert "source_worker_id is shown as a label" in exporter.log
    exporter.process.terminate()
    assert exporter.process.result() == 0
    exporter = serving.start(spawn, tmp_path)
    assert "source_worker_id=" not in exporter.get().text
    assert "WARNING" not in exporter.log


SEEN = status.Seen(*[0] * 12, "", 0.0, 0, 0, "<b>", "<i>", "owner")


def standing(diagnose: Any, see: Any) -> status.Standing:
    return status.Standing(diagnose, see, Settings())


@pytest.mark.parametrize("state", STATES)
def test_any_path_can_be_shown(state: str) -> None:
    path = os.fsdecode(b"/a\xff<script>\n")
    for see in (None, lambda: SEEN):
        page = status.page(standing(lambda: Diagnosis(path, state), see), _must_not_fail)
        shown = Page(page.decode())
        assert "script" not in shown.tags
        assert "/a\\udcff<script> " in shown.text


def _must_not_fail(section: str, error: Exception) -> None:
    raise AssertionError(section) from error


def test_a_section_that_raises_costs_that_section() -> None:
    def broken() -> Any:
        raise RuntimeError("50% <off>")

    diagnosis = Diagnosis("/a", "segments")
    seen = SEEN._replace(snapshot_trouble="is <bad>", retention_trouble="")
    for diagnose, see, left_out in (
        (broken, lambda: seen, ["the directory", "the causes"]),
        (
            lambda: diagnosis,
            broken,
            [
                "the directory",
                "the snapshot",
                "the compaction",
                "what is missing",
                "the numbers",
            ],
        ),
        (broken, None, ["the directory"]),
    ):
        failed: list[str] = []
        page = status.page(standing(diagnose, see), lambda name, _: failed.append(name))  # noqa: B023
        shown = Page(page.decode()).text
        assert failed == left_out
        assert [name for name in left_out if f"{name} could not be shown" in shown] == left_out
        assert "/metrics" in shown
        assert ("The totals are too low" in shown) == (diagnose is broken and see is not None)
