"""The packages of the extra ``exporter``, which may be missing, or be there in part."""

from __future__ import annotations

from importlib.util import find_spec

#: Top-level packages that the extra installs.
PACKAGES = frozenset(
    {"bcrypt", "click", "h11", "prometheus_client", "uvicorn", "watchdog", "yaml", "zstandard"}
)


def require() -> None:
    """See that all of them are there, for a command that would find out only later.

    :raises ModuleNotFoundError: one of them is missing; ``name`` says which.
    """
    for name in sorted(PACKAGES):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
