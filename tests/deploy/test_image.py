"""The Dockerfile is sound, and its steps build an exporter and an emitter that work."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mx_exporter.config import DEFAULT_PORT
from tests import support
from tests.support import DEPLOY, serving

#: One worker runs them all, and begins with them.
pytestmark = pytest.mark.long

IMAGE = DEPLOY / "image"
PYTHONS = {"310", "311", "312", "313", "314"}


class Step(NamedTuple):
    word: str
    rest: str


def stages() -> list[list[Step]]:
    """The instructions of each stage; those before the first stand for arguments."""
    text = re.sub(r"^\s*#.*\n", "", (IMAGE / "Dockerfile").read_text(), flags=re.MULTILINE)
    text = text.replace("\\\n", " ")
    found: list[list[Step]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append(Step(word, rest.strip()))
    return found


def all_of(word: str, stage: list[Step]) -> list[str]:
    return [step.rest for step in stage if step.word == word]


# --------------------------------------------------------------------------------------
# What stands in the file


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        support.leave_out("needs hadolint, which there is for x86-64 only")
    done = subprocess.run(
        [hadolint, "--no-color", IMAGE / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_last_stage_only_takes_what_was_built() -> None:
    build, final = stages()
    assert not all_of("RUN", final)
    assert all(rest.startswith("--from=build ") for rest in all_of("COPY", final))
    # One version of Python in both, for which the environment was made.
    assert all_of("FROM", build)[0].removesuffix(" AS build") == all_of("FROM", final)[0]


def test_it_runs_as_nobody_in_particular_and_without_a_shell() -> None:
    _, final = stages()
    (user,) = all_of("USER", final)
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    (program,) = map(json.loads, all_of("ENTRYPOINT", final))
    (arguments,) = map(json.loads, all_of("CMD", final))
    assert [os.path.basename(program[0]), *program[1:], *arguments] == ["mx-metrics", "serve"]
    assert all_of("EXPOSE", final) == [str(DEFAULT_PORT)]


def test_manifests_run_as_the_images_user(added: list[dict[str, Any]]) -> None:
    _, final = stages()
    (user,) = all_of("USER", final)
    for container in added:
        context = container["securityContext"]
        assert f"{context['runAsUser']}:{context['runAsGroup']}" == user


def test_nothing_is_bound_to_one_architecture() -> None:
    text = (IMAGE / "Dockerfile").read_text()
    code = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    assert not re.search(r"amd64|x86|arm64|aarch64|--platform", code)


def test_every_dependency_has_its_version(wheel: Path) -> None:
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (IMAGE / "versions.txt").read_text(), re.M))
    project = (support.ROOT / "pyproject.toml").read_text()
    listed = "".join(re.findall(r"^(?:dependencies|exporter) = \[(.*?)\]", project, re.M | re.S))
    wanted = set(re.findall(r'"([\w-]+)', listed))
    assert wanted
    assert wanted <= set(pinned)
    assert wheel.exists()


# --------------------------------------------------------------------------------------
# What its steps give


def ignored(path: str) -> bool:
    """Whether the build's context lacks a file, by the rules of its .dockerignore."""
    verdict = False
    for rule in (IMAGE / "Dockerfile.dockerignore").read_text().split():
        keep, pattern = rule.startswith("!"), rule.removeprefix("!").removeprefix("**/")
        parents = [path, *map(str, Path(path).parents)]
        names = parents if "**/" not in rule else Path(path).parts
        if any(fnmatch.fnmatchcase(one, pattern) for one in names):
            verdict = not keep
    return verdict


TOP = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "emitter", "exporter", "deploy")


def context() -> Iterator[str]:
    for top in TOP:
        path = support.ROOT / top
        for one in [path] if path.is_file() else sorted(path.rglob("*")):
            name = str(one.relative_to(support.ROOT))
            if one.is_file() and not ignored(name):
                yield name


class Plain:
    """The build stage's steps, run in a directory that stands for the root of the image."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.context = root / "context"
        for name in context():
            (self.context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(support.ROOT / name, self.context / name)
        self.place = root
        build, _ = stages()
        for word, rest in build[1:]:
            getattr(self, word.lower())(rest)

    def here(self, text: str) -> str:
        """A text with the image's absolute paths below our root."""
        return re.sub(r"(?<![\w.$-])/(opt|src|tmp)\b", rf"{self.root}/\1", text)

    def workdir(self, rest: str) -> None:
        self.place = Path(self.here(rest))
        self.place.mkdir()

    def copy(self, rest: str) -> None:
        *options, last = rest.split()
        mode = [one.partition("=")[2] for one in options if one.startswith("--chmod=")]
        sources = [one for one in options if not one.startswith("--")]
        target = Path(os.path.join(self.place, self.here(last)))
        for source in sources:
            path = self.context / source
            if path.is_dir():
                shutil.copytree(path, target)
                continue
            copied = target / path.name if last.endswith("/") else target
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copied)
            if mode:
                copied.chmod(int(mode[0], 8))

    def run(self, rest: str) -> None:
        (self.root / "tmp").mkdir(exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-c", self.here(rest)],
            cwd=self.place,
            env=support.clean_environment(PATH=path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{rest}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose ``opt`` is what the last stage takes."""
    return Plain(tmp_path_factory.mktemp("image").resolve()).root


def test_the_context_holds_what_is_copied_and_little_else() -> None:
    names = set(context())
    assert {"pyproject.toml", "README.md", "LICENSE", "deploy/image/with-emitter"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {*TOP}
    assert not [name for name in names if "__pycache__" in name]
    assert not [name for name in names if "kubernetes" in name]


def listing(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in root.rglob("*")}


def test_the_exporter_serves_without_anything_else(
    image: Path, spawn: support.Spawner, tmp_path: Path
) -> None:
    """The image's own command: no path to a shell, nothing written to the image."""
    _, final = stages()
    (program,) = map(json.loads, all_of("ENTRYPOINT", final))
    (arguments,) = map(json.loads, all_of("CMD", final))
    variables = dict(re.findall(r"(\w+)=(\S+)", " ".join(all_of("ENV", final))))
    log = tmp_path / "log"
    log.mkdir()
    (log / "events-aaaaaaaaaaaa-0.jsonl").write_bytes(support.Lines().header())
    port = support.free_port()
    before = listing(image / "opt")
    exporter = spawn(
        f"{image}{program[0]}",
        *program[1:],
        *arguments,
        env={
            **variables,
            "PATH": "/nowhere",
            "MX_METRICS_DIR": str(log),
            "MX_METRICS_PORT": str(port),
        },
        cwd="/",
    )
    served = serving.Exporter(exporter, "127.0.0.1", port)

    assert "\nmx_build_info{" in support.wait_until(served.page)
    exporter.terminate()
    assert exporter.result() == 0
    assert listing(image / "opt") == before


def test_the_exporters_environment_holds_what_it_runs_and_no_more(image: Path) -> None:
    (site,) = (image / "opt" / "mx-metrics" / "lib").glob("python3.*/site-packages")
    names = {path.name for path in site.iterdir()}
    assert {"mx_emitter", "mx_exporter", "orjson", "structlog"} <= names
    assert not {"pip", "setuptools", "hatchling", "pytest"} & names


def test_the_emitter_is_for_every_python_that_engines_have(image: Path) -> None:
    built = {path.name for path in (image / "opt" / "mx-emitter" / "lib" / "orjson").glob("*.so")}
    assert {re.findall(r"cpython-(\d+)", name)[0] for name in built} == PYTHONS


@pytest.mark.parametrize("given", [None, "", "/plugins"])
def test_the_emitter_comes_last_on_the_path(
    given: str | None,
    image: Path,
    spawn: support.Spawner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bare Python, as an engine's image has it: it finds the emitter, and logs."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    python = Path(sys.base_prefix) / "bin" / "python3"
    code = (
        "import os, mx_activate, mx_emitter, orjson, structlog\n"
        "assert mx_activate.active()\n"
        "mx_emitter.metrics.record_nixl_receive('complete')\n"
        "print(os.environ['PYTHONPATH'])\n"
        "print(mx_emitter.__file__, orjson.__file__, structlog.__file__)\n"
    )
    env = {"MX_METRICS_ENABLED": "1", "MX_METRICS_DIR": str(tmp_path / "log")}
    if given is not None:
        env["PYTHONPATH"] = given
    # As the init container leaves it, in the volume.
    subprocess.run(["cp", "-R", f"{image}/opt/mx-emitter/.", tmp_path / "volume"], check=True)
    engine = spawn(
        tmp_path / "volume" / "with-emitter", python, "-s", "-c", code, "--arg with blanks", env=env
    )
    assert engine.result() == 0, engine.error_output
    path, files = engine.output.splitlines()
    library = f"{tmp_path}/volume/lib"
    site = f"{library}/mx_activate/site"
    assert path == (f"{site}:{given}:{library}" if given else f"{site}:{library}")
    assert all(name.startswith(library) for name in files.split())
    assert len(list((tmp_path / "log").glob("events-*.jsonl"))) == 1


def test_with_emitter_is_the_command_itself(image: Path, spawn: support.Spawner) -> None:
    """Signals and the exit status are the engine's own."""
    program = image / "opt" / "mx-emitter" / "with-emitter"
    engine = spawn(program, "sh", "-c", 'echo "$1"; kill -TERM $$', "sh", "a  b")
    assert engine.result() == -15
    assert engine.output == "a  b\n"
