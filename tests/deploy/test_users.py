"""An engine and an exporter of different users share a volume, as a pod's ``fsGroup`` makes it."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import support
from tests.support import serving

#: Becomes another user once everything is imported: nobody else may read a developer's home.
BECOME = "import os; os.setgroups([{group}]); os.setgid({gid}); os.setuid({uid})\n"

ENGINE = """
import sys
from mx_emitter import metrics
{become}
for _ in range(300):
    metrics.record_nixl_receive("complete")
print("written", flush=True)
sys.stdin.read()
"""

EXPORTER = """
import sys
import mx_exporter.cli.main, mx_exporter.service.serve
from mx_exporter.__main__ import main
{become}
sys.argv = ["mx-metrics", "serve", "--retain-seconds", "0"]
main()
"""


@pytest.fixture
def volume(parts: dict[str, dict[str, Any]]) -> Iterator[Path]:
    """A volume for the pod's group, outside of pytest's directories: those are for one user alone,
    and each session of pytest that starts sees to that again."""
    if os.geteuid():
        support.leave_out("needs root, to become two other users")
    group = parts["mx-metrics-parts"]["spec"]["securityContext"]["fsGroup"]
    with tempfile.TemporaryDirectory(prefix="mx-metrics-volume-") as place:
        Path(place).chmod(0o711)
        path = Path(place) / "volume"
        path.mkdir()
        os.chown(path, 0, group)
        path.chmod(0o2770)  # not for others, so that it is the group that counts
        yield path


def test_the_exporter_compacts_what_another_user_writes(
    volume: Path, spawn: support.Spawner, parts: dict[str, dict[str, Any]]
) -> None:
    pod = parts["mx-metrics-parts"]["spec"]
    group = pod["securityContext"]["fsGroup"]
    user = pod["initContainers"][0]["securityContext"]["runAsUser"]
    port = support.free_port()
    env = {
        "MX_METRICS_ENABLED": "1",
        "MX_METRICS_DIR": str(volume),
        "MX_METRICS_PORT": str(port),
        "MX_METRICS_SEGMENT_BYTES": "4096",
        "MX_METRICS_RETAIN_BYTES": "8192",
    }
    engine = spawn.python(
        "-c",
        ENGINE.format(become=BECOME.format(group=group, gid=1000, uid=1000)),
        env=env,
        stdin=-1,
    )
    support.wait_until(lambda: "written" in engine.output or engine.poll() is not None)
    assert engine.poll() is None, engine.error_output
    segments = {path.name for path in volume.glob("events-*.jsonl")}
    assert len(segments) > 5
    assert {path.stat().st_uid for path in volume.glob("events-*.jsonl")} == {1000}

    exporter = spawn.python(
        "-c", EXPORTER.format(become=BECOME.format(group=group, gid=user, uid=user)), env=env
    )
    served = serving.Exporter(exporter, "127.0.0.1", port)

    def compacted() -> str:
        text = served.page()
        removed = re.search(r"^mx_exporter_segments_removed_total (\S+)$", text, re.MULTILINE)
        return text if removed and float(removed[1]) else ""

    text = support.wait_until(compacted)
    assert 'mx_exporter_owner_state{state="owner"} 1.0' in text
    assert 'mx_nixl_receive_total{result="complete",scheme=""} 300.0' in text
    assert "mx_exporter_events_lost 0.0" in text
    assert len(list(volume.glob("events-*.jsonl"))) < len(segments)
