"""The packages of the extra ``exporter``, which may be missing, or be there in part."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

#: What the extra installs: the module that each package is imported as, and the package.
PACKAGES: Mapping[str, str] = {
    "bcrypt": "bcrypt",
    "click": "click",
    "h11": "h11",
    "jinja2": "Jinja2",
    "msgspec": "msgspec",
    "prometheus_client": "prometheus_client",
    "watchdog": "watchdog",
    "yaml": "PyYAML",
    "zstandard": "zstandard",
}


def require_packages() -> None:
    """See that all of them are there, so that no command finds out half-way.

    :raises ModuleNotFoundError: one of them is missing; ``name`` is the module.
    """
    for module in PACKAGES:
        if find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
