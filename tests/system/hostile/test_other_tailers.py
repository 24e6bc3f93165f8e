"""Faults that users of other log tailers reported, as tests of this one.

The address of a report is in the docstring. Each test asks for the right total.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mx_exporter.core.builtin import CATALOG
from mx_exporter.core.fold import Fold
from mx_exporter.directory.follower import Follower
from mx_log.schema import MAX_LINE_BYTES
from tests import support
from tests.support import Lines, serving
from tests.support.pages import replayed
from tests.support.writers import Writer

SUCCESS = 'mx_p2p_source_attempts_total{policy="random",result="success",scheme=""}'


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(str(tmp_path), Fold(CATALOG))


def attempts(follower: Follower) -> int:
    return follower.fold.state.events["source_attempted"]


def test_rotations_that_no_notification_told_of(follower: Follower, tmp_path: Path) -> None:
    """A full queue of notifications loses those of renames: the rotated files' ends were never
    read, and the new files were not found. https://github.com/fluent/fluent-bit/issues/1108

    Here a drain lists the directory, whoever was notified of what (`tests/hostile` overflows a
    real queue): files that grew, ended and began unseen between two drains are all read.
    """
    with Writer(tmp_path) as one, Writer(tmp_path, "b" * 12) as other:
        for _ in range(3):
            follower.drain()
            for _ in range(300):
                one.log()
                one.rotate()
                one.log()
            other.log()
        follower.drain()
    assert attempts(follower) == 3 * 601
    assert follower.fold.state.lost == 0


@pytest.mark.parametrize("cut", [1, 60, -1])
def test_half_a_line_then_a_restart_then_the_other_half(tmp_path: Path, cut: int) -> None:
    """Half a line was in the reader's buffer, and counted as read, when the reader was restarted:
    the other half came alone. https://github.com/fluent/fluent-bit/issues/11265
    """
    with Writer(tmp_path) as writer:
        writer.log()
        line = writer.lines("source_attempted", policy="random", result="success")
        writer.write(line[:cut])
        before = Follower(str(tmp_path), Fold(CATALOG))
        before.drain()
        assert attempts(before) == 1
        after = Follower(str(tmp_path), Fold(CATALOG))
        after.drain()
        assert attempts(after) == 1
        writer.write(line[cut:])
        writer.log()
        for follower in (before, after):
            follower.drain()
            assert attempts(follower) == 3
            assert not follower.fold.state.rejected
            assert follower.fold.state.lost == 0


def test_the_tail_of_an_over_long_line(tmp_path: Path) -> None:
    """Of a line over the limit the end was taken for a line of its own; one under the limit, but
    longer than a block, was cut; and what had no newline yet was dropped.
    https://github.com/fluent/fluent-bit/issues/3491
    """
    live = Follower(str(tmp_path), Fold(CATALOG))
    with Writer(tmp_path) as writer:
        hidden = writer.lines("source_attempted", policy="random", result="hidden")
        for piece in (b'{"a":"', b"x" * (MAX_LINE_BYTES - 5), b"x" * 70_000, hidden[:50]):
            writer.write(piece)
            live.drain()
        late = Follower(str(tmp_path), Fold(CATALOG))
        late.drain()
        writer.write(hidden[50:])
        long = writer.lines("source_attempted", policy="random", result="y" * 900_000)
        writer.write(long[:500_000])
        live.drain()
        late.drain()
        writer.write(long[500_000:] + b"hel")
        for follower in (live, late):
            follower.drain()
            assert attempts(follower) == 1
            assert follower.fold.state.rejected == {"too_long": 1}
            labels = follower.fold.state.series["mx_p2p_source_attempts_total"]
            assert ("random", "", "hidden") not in labels


@pytest.mark.parametrize("more", [-3, 0, 3])
def test_the_same_name_and_inode_with_new_content(
    follower: Follower, tmp_path: Path, more: int
) -> None:
    """A file was removed, and another one of its name was given its inode: it was read from the
    old one's position on. https://github.com/fluent/fluent-bit/issues/1875

    Whether the new content is shorter, as long to the byte, or longer. Half a line of the old
    content is no part of the new one.
    """
    with Writer(tmp_path) as writer:
        for _ in range(5):
            writer.log()
        writer.write(writer.lines("source_attempted", policy="random", result="success")[:-20])
        follower.drain()
        assert attempts(follower) == 5
        inode, size = writer.path.stat().st_ino, writer.path.stat().st_size
        new = Lines("b" * 12)
        text = b"".join(
            new("source_attempted", policy="random", result="success") for _ in range(6 + more)
        )
        # Blanks between lines are nothing.
        text = b" " * (size - len(text)) + text if more == 0 else text
        writer.path.write_bytes(text)
        assert writer.path.stat().st_ino == inode
        assert (writer.path.stat().st_size > size) - (writer.path.stat().st_size < size) == (
            (more > 0) - (more < 0)
        )
        follower.drain()
    assert attempts(follower) == 5 + 6 + more
    assert follower.rewritten == 1
    assert not follower.fold.state.rejected


def test_truncated_and_grown_again_beyond_the_old_position(
    follower: Follower, tmp_path: Path
) -> None:
    """A copy was made and the file truncated in place; it had grown again before the next look,
    and lines much like the old ones were skipped.
    https://github.com/open-telemetry/opentelemetry-collector-contrib/issues/43693

    All lines here are of the same length, lie where the old ones lay and end alike; nothing was
    unread when the file was truncated.
    """
    with Writer(tmp_path) as writer:
        header = writer.path.stat().st_size
        writer.lines.seq = 100
        for _ in range(10):
            writer.log(policy="rendezvous_hash", result="metadata_miss")
        follower.drain()
        position = writer.path.stat().st_size
        os.truncate(writer.path, header)
        while writer.path.stat().st_size <= 2 * position:
            writer.log(policy="rendezvous_hash", result="metadata_miss")
        follower.drain()
        count = writer.lines.seq - 100
        assert attempts(follower) == count > 20
        assert follower.rewritten == 1
        # What was written and truncated between two looks nobody can read: it is told.
        writer.log()
        os.truncate(writer.path, 0)
        writer.log()
        follower.drain()
    assert attempts(follower) == count + 1
    assert follower.rewritten == 2
    assert (count + 100, count + 100) in follower.fold.state.books[writer.lines.proc].lost_ranges()


def test_a_packed_copy_beside_the_file_that_was_read(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    """A rotated file was packed, and the packed one read again as a new file: every line twice.
    https://github.com/open-telemetry/opentelemetry-collector-contrib/issues/40523

    The exporter reads no packed files; a replay reads both, and tells by process and number.
    """
    path = Lines().segment(
        tmp_path, 0, [("source_attempted", {"policy": "random", "result": "success"})] * 5
    )
    live = serving.start(spawn, tmp_path)
    assert live.get().sample(SUCCESS) == 5
    Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert live.get().sample(SUCCESS) == 5
    for _ in range(2):
        assert f"{SUCCESS} 5.0\n".encode() in replayed(spawn, tmp_path)
        path.unlink(missing_ok=True)
    assert live.get().sample(SUCCESS) == 5


def test_an_empty_file_of_a_killed_worker(spawn: support.Spawner, tmp_path: Path) -> None:
    """A worker was killed between making its file and writing its head: from then on every
    scrape failed, for all workers. https://github.com/prometheus/client_python/issues/1199
    """
    (tmp_path / ("events-" + "e" * 12 + "-0.jsonl")).touch()
    (tmp_path / (".events-" + "f" * 12 + "-0.jsonl")).touch()
    exporter = serving.start(spawn, tmp_path)
    with Writer(tmp_path) as writer:
        for count in range(1, 4):
            writer.log()
            page = exporter.get()
            assert (page.status, page.sample(SUCCESS)) == (200, count)
    assert exporter.get().sample("mx_exporter_events_lost") == 0


RANK = """
import os
from mx_emitter import enable_metrics, metrics
assert enable_metrics()
for _ in range(10):
    metrics.record_attempt("random", "success")
print(os.getpid())
"""


def test_equal_pids_in_containers_that_share_the_directory(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    """Containers count their processes from 1 each, and files named after that number were
    written by several processes at once; a restarted container found the old one's.
    https://github.com/prometheus/client_python/issues/823
    https://github.com/prometheus/client_python/issues/898
    """
    own_pids = support.unshare("--user", "--map-root-user", "--pid", "--fork")
    env = {"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(tmp_path / "shared")}
    for _ in range(2):  # the second time they are restarted
        ranks = [spawn(*own_pids, sys.executable, "-c", RANK, env=env) for _ in range(4)]
        for rank in ranks:
            assert rank.result() == 0, rank.error_output
            assert rank.output == "1\n"
    follower = Follower(str(tmp_path / "shared"), Fold(CATALOG))
    follower.drain()
    assert attempts(follower) == 2 * 4 * 10
    assert len(follower.fold.state.books) == follower.fold.state.gone == 8
    heads = [path.read_bytes().splitlines()[0] for path in (tmp_path / "shared").glob("events-*")]
    assert {json.loads(head)["pid"] for head in heads} == {1}


def test_removed_files_are_closed(spawn: support.Spawner, tmp_path: Path) -> None:
    """Rotated files that were removed stayed open until the disk was full.
    https://github.com/vectordotdev/vector/issues/3440
    """
    exporter = serving.start(spawn, tmp_path)
    with Writer(tmp_path) as writer:
        for count in range(1, 31):
            writer.log()
            writer.rotate()
            if count % 10 == 0:
                page = exporter.get()
                for path in tmp_path.glob("events-*"):
                    if path != writer.path:
                        path.unlink()
                assert page.sample(SUCCESS) == count
                assert not held(exporter, tmp_path)
        writer.log()
        writer.path.unlink()
        assert exporter.get().sample(SUCCESS) == 30
        assert not held(exporter, tmp_path)


def held(exporter: serving.Exporter, directory: Path) -> list[str]:
    """Files of the directory that the process has open, its lock left out."""
    fds = Path(f"/proc/{exporter.process.pid}/fd")
    targets = [os.readlink(fd) for fd in fds.iterdir()]
    return [name for name in targets if name.startswith(f"{directory}/events-")]


def test_one_bad_label_does_not_cost_the_scrape(
    spawn: support.Spawner, tmp_path: Path, promtool: str
) -> None:
    """A label with a byte that is no UTF-8 made the whole page unreadable: nothing of the target
    was seen any more. https://github.com/prometheus/prometheus/issues/4803
    """
    lines = Lines()
    good = lines("source_attempted", policy="random", result="success")
    bad = lines("source_attempted", policy="POLICY", result="success")
    path = tmp_path / f"events-{lines.proc}-0.jsonl"
    path.write_bytes(good + bad.replace(b"POLICY", b"\xfftest-api"))
    page = serving.start(spawn, tmp_path).get()
    assert page.sample(SUCCESS) == 1
    assert page.sample('mx_exporter_lines_rejected_total{reason="not_json"}') == 1
    checked = subprocess.run([promtool, "check", "metrics"], input=page.body, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, b"")
