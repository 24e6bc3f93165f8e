"""The import hook: what it imports, and that it leaves other hooks alone."""

from __future__ import annotations

import sys

import pytest

import mx_activate
from mx_log import values
from tests import support

SITE = str(support.ROOT / "emitter" / "mx_activate" / "site")


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


def test_with_metrics_off_the_sitecustomize_imports_one_small_module(
    spawn: support.Spawner,
) -> None:
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
