"""Has the published client log through the emitter, without a change to an engine's code.

It is loaded in every process of an engine, most of which never load a model: vLLM imports the
module of each plug-in, Python each `sitecustomize`. So it imports nothing but the standard library,
does nothing while metrics are off, and while they are on it only waits for the client's metrics to
be imported. It stands alone: `sitecustomize` loads this file by its path in Pythons that have
nothing else of ours.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident

TYPE_CHECKING = False  # what imports `typing` pays more for it than for all of us
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

#: The module of the client that has the recorders.
CLIENT = "modelexpress.metrics"

#: The directory whose `sitecustomize` activates us in each Python that has it on its path.
SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")

#: The emitter's part, named as an entry point names it: imported when there is a client to route.
EMITTER = "mx_emitter.modelexpress"

#: Values of ``MX_METRICS_ENABLED`` that turn metrics on: those of `mx_log.values`, which is not
#: everywhere where this file is.
TRUE = frozenset({"1", "true", "yes", "on"})


def enabled(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the environment (default: the process's own) turns metrics on."""
    environ = os.environ if environ is None else environ
    return environ.get("MX_METRICS_ENABLED", "").strip().lower() in TRUE


def register() -> None:
    """Activate: the entry point in ``vllm.general_plugins``, called in every process of vLLM."""
    activate()


def activate() -> bool:
    """Route the client's recorders, now or when they are imported. Idempotent, never raises.

    Returns whether metrics are on; when they are off, nothing was done.
    """
    if not enabled():
        return False
    try:
        watch(lambda module: _emitter().route(module))
        # Perhaps a thread is importing the metrics now, and asked for them before we watched.
        if CLIENT.partition(".")[0] in sys.modules:
            _emitter().install()
    except Exception as error:
        _complain(error)
    return True


def active() -> bool:
    """Whether an import of the client's metrics would be noticed."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def watch(route: Callable[[ModuleType], object]) -> None:
    """Have ``route`` called with the client's metrics whenever they are imported. Idempotent.

    The hook stays: a client that is reloaded makes its recorders anew. It costs every other import
    one comparison of names.
    """
    if not active():
        sys.meta_path.insert(0, _Finder(route))


def with_site(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` with `SITE` first on ``PYTHONPATH``, before all that is there already."""
    there = environ.get("PYTHONPATH", "")
    kept = [entry for entry in there.split(os.pathsep) if entry != SITE] if there else []
    return {**environ, "PYTHONPATH": os.pathsep.join([SITE, *kept])}


class _Finder:
    """Finds the client's metrics as everybody else does, and routes them once they are there.

    It does so within the import, under the import system's lock of that module: no thread gets
    hold of recorders that are not routed yet.
    """

    def __init__(self, route: Callable[[ModuleType], object]) -> None:
        self._route = route
        self._asking: set[int] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != CLIENT or get_ident() in self._asking:  # another's hook that asks all others
            return None
        self._asking.add(get_ident())
        try:
            spec = self._found_by_others(name, path, target)
        finally:
            self._asking.discard(get_ident())
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self._route)  # type: ignore[assignment]
        return spec

    def _found_by_others(self, name: str, *given: Any) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec and find_spec(name, *given)
            if spec is not None:
                return spec
        return None


class _Loader:
    """Another loader, after which the module is routed; in all else that loader itself."""

    def __init__(self, loader: Any, route: Callable[[ModuleType], object]) -> None:
        self._loader = loader
        self._route = route

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        # What looks at the module later finds the loader it would have found without us.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        try:
            if enabled():
                self._route(module)
        except Exception as error:
            _complain(error)


def _emitter() -> Any:
    import importlib

    return importlib.import_module(EMITTER)


def _complain(error: Exception) -> None:
    import logging

    logging.getLogger("mx_emitter").warning(
        "the client's metrics stay as they are, as mx_emitter cannot be used here: %s", error
    )
