"""The jobs that fold a fleet: valid, and what they run gives the page of one replay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from mx_demo.fleet import write_fleet
from tests import support

JOBS = support.DEPLOY / "fleet" / "jobs.yaml"


def test_the_jobs_fold_and_merge_a_fleet(tmp_path: Path) -> None:
    fold, merge = yaml.safe_load_all(JOBS.read_text())
    for job in (fold, merge):
        kubernetes_validate.validate(job, "1.33", strict=True)
        assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert fold["spec"]["completionMode"] == "Indexed"
    (container,) = fold["spec"]["template"]["spec"]["containers"]
    assert [each["value"] for each in container["env"]] == [str(fold["spec"]["completions"])]
    write_fleet(tmp_path / "logs", 5, start=1_767_225_600)
    (tmp_path / "states").mkdir()
    for number in range(2):
        run(fold, tmp_path, PARTS="2", JOB_COMPLETION_INDEX=str(number))
    run(fold, tmp_path, PARTS="9", JOB_COMPLETION_INDEX="8")  # of which there is no pod
    assert len(list((tmp_path / "states").iterdir())) == 2
    run(merge, tmp_path)
    command = [sys.executable, "-m", "mx_exporter", "replay", tmp_path / "logs" / "*"]
    page = subprocess.run(
        command, env=support.clean_environment(), stdout=subprocess.PIPE, check=True
    ).stdout
    assert (tmp_path / "page.prom").read_bytes() == page


def run(job: dict[str, Any], fleet: Path, **env: str) -> None:
    """Run what a job's container does, with its volume at another place."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    assert mount["mountPath"] == "/fleet"
    (script,) = container["args"]
    assert script.startswith("cd /fleet\n")
    script = script.replace("/fleet", str(fleet))
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        [*container["command"], script],
        env=support.clean_environment(PATH=path, **env),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
