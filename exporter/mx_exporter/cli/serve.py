"""``mx-metrics serve``."""

from __future__ import annotations

import click

from ..config import doubts, read_settings
from .options import SERVING, settings_options


@click.command()
@settings_options(*SERVING)
def serve(**flags: str | bool | None) -> int:
    """Follow the directory and serve its metrics.

    /metrics for Prometheus, /healthz, /readyz, and / for people. One exporter owns a directory
    and compacts it; a second one stands by and takes over when the first one goes.
    """
    settings = read_settings(flags)
    from ..service.serve import run

    return run(settings, warnings=doubts())
