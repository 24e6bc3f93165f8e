"""systemd accepts the units."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests import support
from tests.support import DEPLOY

UNITS = DEPLOY / "systemd"


def read(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", path.read_text(), re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def verify(systemd_analyze: str, home: Path, service: str) -> str:
    """What systemd says about the units; nothing where it finds nothing."""
    # The paths of an installation, where there is none.
    service = service.replace("/opt/mx-metrics/bin/", f"{Path(sys.executable).parent}/")
    (home / "mx-metrics.service").write_text(service)
    (home / "engine.service").write_text("[Service]\nExecStart=/bin/true\n")
    (home / "engine.service.d").mkdir(exist_ok=True)
    shutil.copy(UNITS / "engine-mx-metrics.conf", home / "engine.service.d" / "mx-metrics.conf")
    done = subprocess.run(
        [systemd_analyze, "verify", "mx-metrics.service", "engine.service"],
        cwd=home,
        env=support.clean_environment(SYSTEMD_UNIT_PATH=f"{home}:"),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr if done.returncode == 0 else f"{done.returncode}: {done.stderr}"


def test_the_units_are_accepted(systemd_analyze: str, tmp_path: Path) -> None:
    service = (UNITS / "mx-metrics.service").read_text()
    assert verify(systemd_analyze, tmp_path, service) == ""
    assert "Restrat" in verify(systemd_analyze, tmp_path, service.replace("Restart", "Restrat"))


def test_the_exporter_may_do_little(systemd_analyze: str) -> None:
    done = subprocess.run(
        [
            systemd_analyze,
            "security",
            "--offline=true",
            "--threshold=20",
            UNITS / "mx-metrics.service",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_engine_and_exporter_share_a_directory() -> None:
    service = read(UNITS / "mx-metrics.service")
    engine = read(UNITS / "engine-mx-metrics.conf")
    (state,) = service["StateDirectory"]
    where = f"MX_METRICS_DIR=/var/lib/{state}"
    assert where in service["Environment"]
    assert {where, "MX_METRICS_ENABLED=1"} == set(engine["Environment"])
    # The engine writes by the group; what it makes belongs to the group.
    (mode,) = service["StateDirectoryMode"]
    assert int(mode, 8) == 0o2775
    assert engine["SupplementaryGroups"] == service["Group"] == service["User"]


def test_the_user_is_made(tmp_path: Path) -> None:
    sysusers = shutil.which("systemd-sysusers")
    if sysusers is None:
        support.leave_out("needs systemd-sysusers, of Debian's package systemd")
    # In a root of its own, so that the machine keeps its users.
    (tmp_path / "etc").mkdir()
    done = subprocess.run(
        [str(sysusers), f"--root={tmp_path}", UNITS / "mx-metrics.sysusers"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (user,) = read(UNITS / "mx-metrics.service")["User"]
    assert re.search(rf"^{user}:", (tmp_path / "etc" / "passwd").read_text(), re.MULTILINE)
    assert re.search(rf"^{user}:", (tmp_path / "etc" / "group").read_text(), re.MULTILINE)
