"""``mx-metrics push``."""

from __future__ import annotations

import click

from ..config import PUSHING, doubts, read_settings
from ..errors import UsageError
from ..log_setup import log_to_stderr
from .options import complete, settings_options


@click.command()
@click.argument("where", required=False, metavar="[DIR]", shell_complete=complete("dir"))
@settings_options("directory", *PUSHING, "source_id_label", "max_series", "catalog")
def push(where: str | None, **flags: str | bool | None) -> int:
    """Push the metrics derived from DIR, once: to a Pushgateway, by remote write, or by OTLP.

    DIR may be given by --dir as well. The push replaces what the pod pushed before; the label pod
    is POD_UID, else POD_NAME, else the name of the host.
    """
    if where is not None:
        if flags["directory"] is not None:
            raise UsageError("DIR and --dir: give only one of them")
        flags["directory"] = where
    names = [
        *("directory", "port", *PUSHING, "source_id_label", "max_series", "catalog"),
        *("pod_uid", "pod_name", "pod_namespace", "node_name"),
    ]
    settings = read_settings(flags, names=names)
    from ..service.push import run

    log_to_stderr()
    return run(settings, warnings=doubts())
