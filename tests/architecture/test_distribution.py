"""The distribution: what is in it, what it needs, and which way its halves depend."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

from mx_log.schema import VERSION
from tests import support
from tests.support import serving
from tests.support.pythons import SUPPORTED, find_python

EMITTER = support.ROOT / "emitter" / "mx_emitter"
LOG = support.ROOT / "emitter" / "mx_log"
ACTIVATE = support.ROOT / "emitter" / "mx_activate"
EXPORTER = support.ROOT / "exporter" / "mx_exporter"
DEMO = support.ROOT / "exporter" / "mx_demo"


def sources(package: Path) -> set[str]:
    return {
        str(path.relative_to(package.parent))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


# --------------------------------------------------------------------------------------
# Which way they depend


def imports(path: Path) -> Iterator[str]:
    """Modules that a source file imports, wherever in it, with what is taken from them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            assert node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", sorted(EMITTER.rglob("*.py")), ids=lambda path: path.name)
def test_the_emitter_knows_no_exporter(path: Path) -> None:
    assert not [name for name in imports(path) if name.split(".")[0] == "mx_exporter"]


@pytest.mark.parametrize("path", sorted(ACTIVATE.rglob("*.py")), ids=lambda path: path.name)
def test_activation_imports_the_standard_library_alone(path: Path) -> None:
    """Engines import it in each of their processes: the standard library, until it has to act."""
    ours = [name for name in imports(path) if name.split(".")[0] in ("mx_emitter", "mx_exporter")]
    assert not ours
    foreign = {name.split(".")[0] for name in imports(path)} - sys.stdlib_module_names
    assert foreign <= {"mx_activate"}


@pytest.mark.parametrize("path", sorted(EXPORTER.rglob("*.py")), ids=lambda path: path.name)
def test_the_exporter_knows_no_emitter(path: Path) -> None:
    assert not [name for name in imports(path) if name.split(".")[0] == "mx_emitter"]


# --------------------------------------------------------------------------------------
# What is in it


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        info = f"mx_metrics-{VERSION}.dist-info/"
        metadata = Parser().parsestr(archive.read(f"{info}METADATA").decode())
        assert f"{info}licenses/LICENSE" in names
    ours = sources(LOG) | sources(EMITTER) | sources(ACTIVATE)
    ours |= sources(EXPORTER) | sources(DEMO)
    assert {n for n in names if not n.startswith(info)} == ours
    assert {
        f"{name}/py.typed"
        for name in ("mx_log", "mx_emitter", "mx_activate", "mx_exporter", "mx_demo")
    } <= names
    assert "mx_activate/site/sitecustomize.py" in names

    requires = metadata.get_all("Requires-Dist", [])
    base = {entry.split(">")[0] for entry in requires if "extra ==" not in entry}
    assert base == {"structlog", "orjson"}
    assert metadata["Name"] == "mx-metrics"
    assert metadata["License-Expression"] == "Apache-2.0"


#: What a build reads, beside what the folders hold.
FILES = ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "hatch_build.py",
         "pyproject.toml", ".gitignore")  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What `make dist` builds, twice: of two copies, made at different times and places."""
    made = []
    for number, mask in enumerate((0o022, 0o077)):
        place = tmp_path_factory.mktemp(f"copy-{number}")
        for name in FILES:
            shutil.copyfile(support.ROOT / name, place / name)
        for name in ("emitter", "exporter", "tests", "deploy", "docs"):
            no_caches = shutil.ignore_patterns("__pycache__")
            shutil.copytree(support.ROOT / name, place / name, ignore=no_caches)
        (place / "LICENSE").touch()
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", "dist"],
            cwd=place,
            check=True,
            capture_output=True,
            env=support.clean_environment() | {"SOURCE_DATE_EPOCH": "1700000000"},
            umask=mask,
        )
        made.append(place / "dist")
    return made[0], made[1]


def test_a_build_gives_the_same_bytes_again(built: tuple[Path, Path]) -> None:
    once, again = ({file.name: file.read_bytes() for file in place.iterdir()} for place in built)
    assert {name.rpartition(".")[2] for name in once} == {"whl", "gz"}
    assert once == again


def test_an_index_takes_them(built: tuple[Path, Path]) -> None:
    twine = support.ROOT / ".venv-dist" / "bin" / "twine"
    if not twine.exists():
        support.leave_out("needs twine (`make tools`)")
    done = subprocess.run(
        [twine, "check", "--strict", *built[0].iterdir()],
        capture_output=True,
        text=True,
        check=False,
        env=support.clean_environment() | {"NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def test_the_readme_leads_somewhere_on_an_index(built: tuple[Path, Path]) -> None:
    """There no repository stands around it."""
    (wheel,) = built[0].glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        metadata = Parser().parsestr(
            archive.read(f"mx_metrics-{VERSION}.dist-info/METADATA").decode()
        )
    assert metadata["Description-Content-Type"] == "text/markdown"
    urls = dict(one.split(", ", 1) for one in metadata.get_all("Project-URL", []))
    base = f"{urls['Source']}/blob/v{VERSION}/"
    text = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    here = re.findall(r"\]\(([^)\s]+)\)", (support.ROOT / "README.md").read_text())
    assert len(links) == len(here) > 10
    for link, local in zip(links, here, strict=True):
        if not local.startswith("https://"):
            assert link == base + ("README.md" if local.startswith("#") else "") + local
            assert (support.ROOT / link.removeprefix(base).partition("#")[0]).exists()
    # Nothing else of it is changed.
    assert re.sub(r"\]\([^)]*\)", "", text) == re.sub(
        r"\]\([^)]*\)", "", (support.ROOT / "README.md").read_text()
    )


def test_the_sdist_holds_the_whole_project(built: tuple[Path, Path]) -> None:
    (sdist,) = built[0].glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in (
        *FILES,
        "emitter/mx_log/schema.py",
        "exporter/mx_exporter/core/catalog.py",
        "exporter/mx_demo/loads.py",
        "tests/support/__init__.py",
        "docs/generate.py",
        "deploy/kubernetes/components/sidecar/parts.yaml",
    ):
        assert name in names
    assert not [name for name in names if name.startswith(".venv") or "__pycache__" in name]


# --------------------------------------------------------------------------------------
# Installed bare


@pytest.mark.parametrize("how", ["script", "module"])
def test_without_the_extra_the_command_says_how_to_get_it(
    how: str, bare_venv: Path, spawn: support.Spawner
) -> None:
    script = bare_venv.with_name("mx-metrics")
    command = [script] if how == "script" else [bare_venv, "-m", "mx_exporter"]
    process = spawn(*command, "serve")
    assert process.result() == 2
    assert process.output == ""
    (line,) = process.error_output.splitlines()
    assert "pip install 'mx-metrics[exporter]'" in line


def test_the_version_is_one(bare_venv: Path, spawn: support.Spawner) -> None:
    code = (
        "import mx_emitter, importlib.metadata as m; "
        "print(mx_emitter.__version__, m.version('mx-metrics'))"
    )
    process = spawn(bare_venv, "-c", code)
    assert process.result() == 0, process.error_output
    assert process.output.split() == [VERSION, VERSION]


# --------------------------------------------------------------------------------------
# On the oldest Python


def oldest_python() -> str:
    """An interpreter of the oldest release that is supported, if the machine has one."""
    oldest = SUPPORTED[0]
    return find_python(oldest) or str(support.leave_out(f"needs a Python {oldest}"))


def test_a_python_that_is_not_there_is_not_found() -> None:
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert find_python(own) == sys.executable
    assert find_python("3.99") is None


@pytest.mark.long
def test_the_whole_path_on_python_3_10(wheel: Path, spawn: support.Spawner, tmp_path: Path) -> None:
    """A rank logs, the exporter serves, a replay agrees; with the libraries that 3.10 gets."""
    home = tmp_path / "venv"
    assert spawn(oldest_python(), "-m", "venv", home).result() == 0
    python = home / "bin" / "python"
    install = spawn(
        python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{wheel}[exporter]"
    )
    assert install.result(300) == 0, install.error_output

    port = support.free_port()
    environment = {"MX_METRICS_DIR": str(tmp_path / "log"), "MX_METRICS_ENABLED": "1"}
    rank = spawn(*(python, "-m", "mx_demo.rank", "artifacts", "--speed", "600"), env=environment)
    assert rank.result() == 0, rank.error_output
    exporter = spawn(
        python, "-m", "mx_exporter", "serve", "--listen", f"127.0.0.1:{port}", env=environment
    )
    served = serving.Exporter(exporter, "127.0.0.1", port)
    page = support.wait_until(served.page).splitlines()
    replay = spawn(python, "-m", "mx_exporter", "replay", env=environment)
    assert replay.result() == 0, replay.error_output
    replayed = replay.output.splitlines()
    assert any(line.startswith("mx_artifact_install_bytes_total{") for line in replayed)
    assert [line for line in page if line in set(replayed)] == replayed
    assert exporter.poll() is None
