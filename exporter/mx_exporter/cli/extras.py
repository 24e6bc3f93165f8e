"""The packages of the extras, which may be missing, or be there in part."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec

#: What each extra installs: the module that a package is imported as, and the package.
EXTRAS: Mapping[str, Mapping[str, str]] = {
    "exporter": {
        "bcrypt": "bcrypt",
        "click": "click",
        "h11": "h11",
        "jinja2": "Jinja2",
        "msgspec": "msgspec",
        "prometheus_client": "prometheus_client",
        "watchdog": "watchdog",
        "yaml": "PyYAML",
        "zstandard": "zstandard",
        **({} if sys.version_info >= (3, 11) else {"tomli": "tomli"}),
    },
    "dask": {"dask": "dask", "distributed": "distributed"},
    "top": {"rich": "rich"},
}

#: Those that every command needs.
PACKAGES = EXTRAS["exporter"]


def require_packages(extra: str = "exporter") -> None:
    """See that all of them are there, so that no command finds out half-way.

    :raises ModuleNotFoundError: one of them is missing; ``name`` is the module.
    """
    for module in EXTRAS[extra]:
        if find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def how_to_install(module: str) -> str | None:
    """What to say of a module that is missing; None where it is of no extra."""
    for extra, packages in EXTRAS.items():
        if module in packages:
            extras = extra if extra == "exporter" else f"exporter,{extra}"
            what = {"exporter": "exporter", "dask": "engine dask"}.get(extra, f"command {extra}")
            return (
                f"the package {packages[module]} is missing; install the {what} with: "
                f"pip install 'mx-metrics[{extras}]'"
            )
    return None
