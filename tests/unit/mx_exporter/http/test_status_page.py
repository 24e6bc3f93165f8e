"""The status page, the log and the gauge explain why there is nothing to show."""

from __future__ import annotations

import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mx_exporter.directory.diagnosis import STATES, Diagnosis
from mx_exporter.http import status_page
from mx_log.schema import VERSION
from tests import support
from tests.support import serving


class Reader(HTMLParser):
    """A page's text, tags and links; fails where a tag is not closed in order."""

    VOID = ("meta", "!doctype")

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.tags: set[str] = set()
        self.links: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(exporter: serving.Exporter) -> Reader:
    answer = exporter.get("/")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    return Reader(answer.text)


def test_all_is_well(spawn: support.Spawner, tmp_path: Path) -> None:
    os.utime(serving.attempts(tmp_path, 3), (1, 1))
    exporter = serving.start(spawn, tmp_path)
    shown = read(exporter)
    assert shown.links == ["/metrics", "/healthz", "/readyz"]
    assert all(exporter.get(link).status == 200 for link in shown.links)
    assert not shown.tags & {"script", "link", "img", "style", "iframe"}
    for expected in (VERSION, str(tmp_path), "has segments", "events logged", "0 alive, 1 gone"):
        assert expected in shown.text
    assert "likeliest causes" not in shown.text
    assert "too low" not in shown.text
    assert "role" + "owner (compacts)" in shown.text
    assert "archives" not in shown.text


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


@pytest.mark.parametrize("state", STATES)
def test_any_path_can_be_shown(state: str) -> None:
    path = os.fsdecode(b"/a\xff<script>\n")
    seen = status_page.Seen(*[0] * 12, "", 0.0, 0, 0, "<b>", "<i>", "owner")
    for see in (None, lambda: seen):
        page = status_page.render(lambda: Diagnosis(path, state), see, _must_not_fail)
        shown = Reader(page.decode())
        assert "script" not in shown.tags
        assert "/a?<script>" in shown.text


def _must_not_fail(section: str, error: Exception) -> None:
    raise AssertionError(section) from error


def test_a_section_that_raises_costs_that_section() -> None:
    def broken() -> Any:
        raise RuntimeError("50% <off>")

    diagnosis = Diagnosis("/a", "segments")
    seen = status_page.Seen(*[0] * 12, "", 0.0, 0, 0, "is <bad>", "", "owner")
    for diagnose, see, left_out in (
        (broken, lambda: seen, ["the directory", "the causes"]),
        (
            lambda: diagnosis,
            broken,
            ["the directory", "the snapshot", "the compaction", "the numbers"],
        ),
        (broken, None, ["the directory"]),
    ):
        failed: list[str] = []
        page = status_page.render(diagnose, see, lambda name, _: failed.append(name))  # noqa: B023
        shown = Reader(page.decode()).text
        assert failed == left_out
        assert [name for name in left_out if f"{name} could not be shown" in shown] == left_out
        assert "/metrics" in shown
        assert ("The totals are too low" in shown) == (diagnose is broken and see is not None)
