"""Activation without code: vLLM's entry point, and a `sitecustomize`, in every process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import mx_activate
from mx_emitter import settings
from mx_emitter.commands.doctor import examine
from mx_emitter.commands.doctor_client import PLUGIN, examine_route
from mx_log import values
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


# --------------------------------------------------------------------------------------
# What it costs


def imported(spawn: support.Spawner, code: str, **env: str) -> set[str]:
    """Modules that a program imports, by Python's own account."""
    done = spawn(sys.executable, "-X", "importtime", "-c", code, env=env)
    assert done.result() == 0, done.error_output
    return {
        line.rpartition("|")[2].strip()
        for line in done.error_output.splitlines()
        if line.startswith("import time:")
    }


@pytest.mark.parametrize("value", ["", "0", "off"])
def test_with_metrics_off_one_small_module_is_imported(value: str, spawn: support.Spawner) -> None:
    code = "import mx_activate; mx_activate.register()"
    more = imported(spawn, code, MX_METRICS_ENABLED=value) - imported(spawn, "pass")
    assert more - {"__future__"} == {"mx_activate"}


def test_with_metrics_off_so_it_is_at_pythons_start(spawn: support.Spawner) -> None:
    more = imported(spawn, "pass", PYTHONPATH=SITE) - imported(spawn, "pass")
    ours = {"sitecustomize", "mx_activate", "__future__"}
    # The rest finds the next sitecustomize, and is what an empty program has anyway or is small.
    assert more - ours <= {"importlib", "importlib.machinery", "warnings"} | {
        "importlib.util", "importlib._abc", "contextlib", "threading", "functools", "collections",
        "keyword", "operator", "reprlib", "types", "_weakrefset", "itertools", "_collections",
        "_functools", "_operator", "importlib._bootstrap", "importlib._bootstrap_external",
    }  # fmt: skip


def test_until_the_client_is_imported_nothing_else_is(spawn: support.Spawner) -> None:
    code = "import mx_activate; mx_activate.register()"
    more = imported(spawn, code, MX_METRICS_ENABLED="1") - imported(spawn, "pass")
    assert more - {"__future__"} == {"mx_activate"}


def test_it_needs_the_standard_library_alone(spawn: support.Spawner) -> None:
    """Isolated and without site-packages, it does all that it does while metrics are off."""
    path = str(support.ROOT / "emitter")
    code = f"import sys; sys.path.insert(0, {path!r}); import mx_activate; mx_activate.register()"
    done = spawn(sys.executable, "-I", "-S", "-W", "error", "-c", code)
    assert (done.result(), done.error_output) == (0, "")


def test_the_words_for_on_are_the_emitters() -> None:
    assert mx_activate.TRUE == values.TRUE


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
# PYTHONPATH and other people's sitecustomize


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, [SITE]),
        ("", [SITE]),
        ("/a:/b", [SITE, "/a", "/b"]),
        (f"/a:{SITE}:/b", [SITE, "/a", "/b"]),
        ("/a:", [SITE, "/a", ""]),
    ],
)
def test_pythonpath_is_extended_and_never_replaced(before: str | None, after: list[str]) -> None:
    environ = {"X": "1"} if before is None else {"X": "1", "PYTHONPATH": before}
    found = mx_activate.with_site(environ)
    assert found == {"X": "1", "PYTHONPATH": os.pathsep.join(after)}
    assert mx_activate.with_site(found) == found


def put(directory: Path, code: str) -> str:
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(code)
    return str(directory)


def run_on_path(spawn: support.Spawner, *path: str, on: str = "1") -> support.Process:
    done = spawn(
        sys.executable,
        "-c",
        "import sys, mx_activate; print(mx_activate.active(), sys.modules['sitecustomize'])",
        env={"MX_METRICS_ENABLED": on, "PYTHONPATH": os.pathsep.join(path)},
    )
    assert done.result() == 0, done.error_output
    return done


@pytest.mark.parametrize("on", ["0", "1"])
def test_the_next_sitecustomize_runs_as_well(
    on: str, spawn: support.Spawner, tmp_path: Path
) -> None:
    theirs = put(tmp_path / "theirs", "print('theirs', __name__, __file__)")
    last = put(tmp_path / "last", "print('last')")
    done = run_on_path(spawn, SITE, theirs, last, on=on)
    assert done.output.splitlines()[0] == f"theirs sitecustomize {theirs}/sitecustomize.py"
    assert "last" not in done.output.split()
    assert str(on == "1") in done.output
    assert f"{theirs}/sitecustomize.py" in done.output.splitlines()[1]  # and importers get it
    assert done.error_output == ""


def test_the_next_one_may_run_us_in_turn(spawn: support.Spawner, tmp_path: Path) -> None:
    ours = os.path.join(SITE, "sitecustomize.py")
    theirs = put(tmp_path / "theirs", f"import runpy\nprint('theirs')\nrunpy.run_path({ours!r})\n")
    done = run_on_path(spawn, SITE, theirs)
    assert done.output.split().count("theirs") == 1
    done = run_on_path(spawn, theirs, SITE)
    assert done.output.split().count("theirs") == 1
    assert done.output.splitlines()[1].startswith("True")


def test_two_of_ours_on_the_path(spawn: support.Spawner, tmp_path: Path) -> None:
    (tmp_path / "again").symlink_to(SITE)
    copy = put(tmp_path / "copy", (Path(SITE) / "sitecustomize.py").read_text())
    theirs = put(tmp_path / "theirs", "print('theirs')")
    done = run_on_path(spawn, SITE, str(tmp_path / "again"), copy, SITE, theirs)
    assert done.output.split().count("theirs") == 1
    assert done.output.splitlines()[1].startswith("True")


def test_a_faulty_sitecustomize_is_pythons_to_tell(spawn: support.Spawner, tmp_path: Path) -> None:
    theirs = put(tmp_path / "theirs", "raise ValueError('theirs')")
    done = spawn(
        sys.executable,
        "-c",
        "import mx_activate; print(mx_activate.active())",
        env={"MX_METRICS_ENABLED": "1", "PYTHONPATH": os.pathsep.join([SITE, theirs])},
    )
    assert (done.result(), done.output) == (0, "True\n")
    assert "ValueError: theirs" in done.error_output


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
# The command


def test_run_becomes_the_command(spawn: support.Spawner, tmp_path: Path) -> None:
    code = "import os, sys; print(os.getpid(), sys.argv, os.environ['PYTHONPATH'])"
    done = spawn.python(
        "-m", "mx_emitter", "run", "--", sys.executable, "-c", code, "--", "-x",
        env={"PYTHONPATH": "/a"},
    )  # fmt: skip
    assert done.result() == 0, done.error_output
    assert done.output.split("\n")[0] == f"{done.pid} ['-c', '--', '-x'] {SITE}:/a"
    status = spawn.python("-m", "mx_emitter", "run", "sh", "-c", "exit 7")
    missing = spawn.python("-m", "mx_emitter", "run", "--", "no-such-command")
    refused = spawn.python("-m", "mx_emitter", "run", "--", str(tmp_path))
    nothing = spawn.python("-m", "mx_emitter", "run", "--")
    results = [each.result() for each in (status, missing, refused, nothing)]
    assert results == [7, 127, 126, 2]
    assert missing.error_output.count("\n") == refused.error_output.count("\n") == 1


# --------------------------------------------------------------------------------------
# The doctor


@pytest.mark.parametrize(
    ("client", "environ", "obstacle", "remark"),
    [
        ("0.7.0", {"VLLM_PLUGINS": "modelexpress"}, "add mx_metrics to it", ""),
        ("0.7.0", {"VLLM_PLUGINS": "", "MX_METRICS_PORT": "9402"}, "binds port 9402", ""),
        ("0.7.0", {}, "", "`python -m mx_emitter run"),
        ("0.7.0", {"MX_METRICS_PORT": "9402"}, "", "it binds port 9402"),
        ("0.7.0", {"MX_METRICS_PORT": "0"}, "", "`python -m mx_emitter run"),
        ("9.9.9", {"MX_METRICS_PORT": "9402"}, "", "9.9.9 of modelexpress is unknown"),
        (None, {"VLLM_PLUGINS": "x"}, "", ""),
    ],
)
def test_the_doctor_knows_who_routes_the_client(
    client: str | None, environ: dict[str, str], obstacle: str, remark: str
) -> None:
    route = examine_route(client, True, environ)
    for found, words in ((route.obstacles, obstacle), (route.remarks, remark)):
        assert len(found) == bool(words)
        assert words in "".join(found)
    assert not {"0"} & set(" ".join(route.remarks).split())


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
