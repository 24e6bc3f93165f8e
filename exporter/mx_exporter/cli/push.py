"""``mx-metrics push``."""

from __future__ import annotations

import click

from ..config import doubts, read_settings
from ..errors import UsageError
from ..log_setup import log_to_stderr
from .options import complete, remote_write_options, settings_options


@click.command()
@click.argument("where", required=False, metavar="[DIR]", shell_complete=complete("dir"))
@settings_options("directory", "pushgateway", "job", "source_id_label", "max_series", "catalog")
@remote_write_options
def push(
    where: str | None,
    remote_write: str | None,
    bearer_token_file: str | None,
    **flags: str | bool | None,
) -> int:
    """Push the metrics derived from DIR to a Pushgateway, or by remote write, once.

    DIR may be given by --dir as well. The push replaces what the pod pushed before; the label pod
    is POD_UID, else POD_NAME, else the name of the host.
    """
    if where is not None:
        if flags["directory"] is not None:
            raise UsageError("DIR and --dir: give only one of them")
        flags["directory"] = where
    names = [
        *("directory", "port", "pushgateway", "job", "source_id_label", "max_series", "catalog"),
        *("catalog", "pod_uid", "pod_name"),
    ]
    if remote_write is not None and flags["pushgateway"] is not None:
        raise UsageError("--remote-write and --pushgateway: give only one of them")
    settings = read_settings(flags, names=names)
    from ..service.push import run

    log_to_stderr()
    to = None
    if remote_write is not None:
        from ..push.remote_write import target

        to = target(remote_write, bearer_token_file)
    return run(settings, remote=to, warnings=doubts())
