"""Activation without code: vLLM's entry point, and a `sitecustomize`, in every process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mx_emitter import settings
from mx_emitter.commands.doctor import examine
from mx_emitter.commands.doctor_client import PLUGIN, examine_route
from tests import support

#: What vLLM does in each of its processes.
LOAD_PLUGINS = """
from importlib.metadata import entry_points
loaded = {}
for each in entry_points(group="vllm.general_plugins"):
    try: loaded[each.name] = each.load()
    except Exception: pass  # the client's own needs vLLM itself; vLLM logs that
for plugin in loaded.values(): plugin()
assert "mx_metrics" in loaded
"""

#: An engine: its first process loads no model, its workers do.
ENGINE = """
import multiprocessing, os, sys
{plugins}
def worker(rank):
    {plugins_again}
    os.environ["RANK"] = str(rank)
    from modelexpress.metrics import enable_metrics, metrics
    assert enable_metrics()
    metrics.record_attempt("random", "success")

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    {before_fork}
    workers = [context.Process(target=worker, args=(rank,)) for rank in range(3)]
    for each in workers: each.start()
    for each in workers: each.join(); assert each.exitcode == 0
    assert "mx_emitter" not in sys.modules or "modelexpress" in sys.modules
"""

SITE = str(support.ROOT / "emitter" / "mx_activate" / "site")


def engine(tmp_path: Path, **parts: str) -> str:
    """Path of an engine's program."""
    parts = {"plugins": "", "plugins_again": "", "before_fork": "", **parts}
    path = tmp_path / "engine.py"
    path.write_text(ENGINE.format(**parts))
    return str(path)


def check_workers(program: Any) -> None:
    by_process: dict[str, list[str]] = {}
    for line in program.log.lines():
        by_process.setdefault(line["proc"], []).append(line["event"])
    assert list(by_process.values()) == [["process_started", "source_attempted"]] * 3
    assert {event["rank"] for event in program.log.events()} == {0, 1, 2}
    assert {line["version"] for line in program.log.lines() if "version" in line} == {
        program.version
    }


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("imported", [False, True], ids=["not imported yet", "client imported"])
def test_every_worker_of_vllm_logs(
    method: str, imported: bool, program: Any, spawn: support.Spawner, tmp_path: Path
) -> None:
    path = engine(
        tmp_path,
        plugins=LOAD_PLUGINS,
        plugins_again=LOAD_PLUGINS.replace("\n", "\n    "),
        before_fork="import modelexpress.metrics" if imported else "",
    )
    done = spawn.python(
        path,
        method,
        env={
            "MX_METRICS_ENABLED": "1",
            "MX_METRICS_DIR": str(program.directory),
            "PYTHONPATH": program.path,
        },
    )
    assert done.result() == 0, done.error_output
    check_workers(program)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("runner", ["mx_emitter", "mx_exporter"])
def test_every_worker_of_a_command_logs(
    runner: str, method: str, program: Any, spawn: support.Spawner, tmp_path: Path
) -> None:
    done = spawn.python(
        "-m", runner, "run", *(["--port", "0"] if runner == "mx_exporter" else []), "--",
        sys.executable, "-W", "error", engine(tmp_path), method,
        env={
            "MX_METRICS_ENABLED": "1",
            "MX_METRICS_DIR": str(program.directory),
            "PYTHONPATH": program.path,
        },
    )  # fmt: skip
    assert done.result() == 0, done.error_output
    check_workers(program)


def test_other_peoples_import_hooks(program: Any) -> None:
    """Those that ask all others, as ours does, and ours in another copy of its module."""
    program.run(
        """
import sys
class Asking:
    def find_spec(self, name, path=None, target=None):
        for finder in sys.meta_path:
            if finder is not self:
                spec = finder.find_spec(name, path, target)
                if spec: return spec
sys.meta_path.insert(0, Asking())
import mx_activate
mx_activate.register()
del sys.modules["mx_activate"]
import mx_activate as again
again.register()
assert sum(type(f).__name__ == "_Finder" for f in sys.meta_path) == 2
from modelexpress.metrics import enable_metrics, metrics
assert enable_metrics()
metrics.record_attempt("random", "success")
"""
    )
    assert program.log.names() == ["source_attempted"]


# --------------------------------------------------------------------------------------
# Without us in the environment


def test_in_an_environment_without_us_the_client_alone_is_told(
    program: Any, spawn: support.Spawner
) -> None:
    """A Python of another environment is put on our path; it never hears of it but there."""
    env = {"MX_METRICS_ENABLED": "1", "PYTHONPATH": os.pathsep.join([SITE, program.path])}
    base = [sys.executable, "-S", "-c"]  # no site-packages, so no structlog
    start = "import site; site.execsitecustomize()\n"
    other = spawn(*base, start + "import json", env=env)
    client = spawn(*base, start + "import modelexpress.metrics", env=env)
    assert (other.result(), other.error_output) == (0, "")
    assert client.result() == 0
    assert client.error_output.count("\n") == 1
    assert "mx_emitter" in client.error_output


# --------------------------------------------------------------------------------------
# The doctor


@pytest.mark.parametrize(
    ("client", "environ", "obstacle"),
    [
        ("0.7.0", {"VLLM_PLUGINS": "modelexpress"}, "add mx_metrics to it"),
        ("0.7.0", {"VLLM_PLUGINS": "", "MX_METRICS_PORT": "9402"}, "binds port 9402"),
        ("0.7.0", {}, "`python -m mx_emitter run"),
        ("0.7.0", {"MX_METRICS_PORT": "9402"}, "it binds port 9402"),
        ("0.7.0", {"MX_METRICS_PORT": "0"}, "`python -m mx_emitter run"),
        ("9.9.9", {"MX_METRICS_PORT": "9402"}, "9.9.9 of modelexpress is unknown"),
        ("9.9.9", {"VLLM_PLUGINS": "mx_metrics"}, "9.9.9 of modelexpress is unknown"),
        (None, {"VLLM_PLUGINS": "x"}, ""),
        (None, {}, ""),
    ],
)
def test_a_client_that_nothing_routes_is_an_obstacle(
    client: str | None, environ: dict[str, str], obstacle: str
) -> None:
    route = examine_route(client, True, environ)
    assert len(route.obstacles) == bool(obstacle)
    assert obstacle in "".join(route.obstacles)
    assert route.remarks == []
    assert not {"0"} & set(" ".join(route.obstacles).split())


def test_a_list_of_plugins_that_names_us_is_no_obstacle() -> None:
    """Also where this Python, which may be another than the engine's, has no vllm."""
    route = examine_route("0.7.0", True, {"VLLM_PLUGINS": f"modelexpress, {PLUGIN}"})
    assert (route.by, route.obstacles) == ("vLLM's plug-ins", [])
    (remark,) = route.remarks
    assert "this Python has no vllm" in remark


def test_the_doctor_knows_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for plugins in (None, f"a, {PLUGIN}"):
        environ = {} if plugins is None else {"VLLM_PLUGINS": plugins}
        assert examine_route("0.7.0", True, environ) == ("vLLM's plug-ins", [], [])
    assert examine_route("0.7.0", True, {"VLLM_PLUGINS": "a"}).obstacles


def test_the_doctor_knows_a_worker_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_JOB_ID", "01000000")
    off = examine(settings.read_settings({"MX_METRICS_DIR": str(tmp_path)}))
    assert not off.healthy
    assert any("runtime_env" in remark for remark in off.remarks)
    on = settings.read_settings({"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(tmp_path)})
    assert not any("runtime_env" in remark for remark in examine(on).remarks)


def test_the_doctor_sees_the_sitecustomize(program: Any) -> None:
    process = program.run(
        "import runpy, sys; sys.argv = ['doctor']; runpy.run_module('mx_emitter', run_name='x')\n"
        "from mx_emitter.__main__ import main; sys.exit(main([]))",
        PYTHONPATH=SITE,
    )
    assert f"modelexpress {program.version}, routed by sitecustomize" in process.output
