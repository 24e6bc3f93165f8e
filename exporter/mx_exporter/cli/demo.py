"""``mx-metrics demo``."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from mx_log.values import whole_number

from ..errors import UsageError
from ..option_values import between, parse_factor
from .options import complete, parsed


@click.command()
@click.option("--once", is_flag=True, help="One load a rank, then the page against a replay.")
@click.option(
    "--port",
    metavar="PORT",
    callback=parsed(between(1, 65535)),
    help="Port of the endpoint. [default: 9402, or another one]",
)
@click.option(
    "--speed",
    metavar="FACTOR",
    callback=parsed(parse_factor),
    help="How many times as short as real ones loads are. [default: 10, once: 60]",
)
@click.option(
    "--keep",
    metavar="DIR",
    shell_complete=complete("dir"),
    help="Keep the log in DIR, which is new or empty.",
)
@click.option(
    "--pods",
    metavar="N",
    callback=parsed(between(1, 10_000)),
    help="Write logs of so many pods instead, with --out.",
)
@click.option(
    "--out",
    metavar="DIR",
    shell_complete=complete("dir"),
    help="Where to: a folder a pod. DIR is new or empty.",
)
@click.option(
    "--seed",
    metavar="N",
    callback=parsed(whole_number),
    help="Draws what happens to the pods. [default: 0]",
)
def demo(
    once: bool,
    port: int | None,
    speed: float | None,
    keep: str | None,
    pods: int | None,
    out: str | None,
    seed: int | None,
) -> int:
    """See it work without an engine: simulated ranks and an exporter, until Ctrl-C.

    Eight ranks load models again and again, one hangs, one is killed now and then. With --pods and
    --out nothing is started: the logs of a fleet, of the last hours, are written at once, to try
    commands on.
    """
    live = {"--once": once, "--port": port, "--speed": speed, "--keep": keep}
    given = [name for name, value in live.items() if value]
    if pods is None and out is None and seed is None:
        from mx_demo.show import show

        show(once=once, port=port, speed=speed, keep=_folder("--keep", keep))
        return 0
    if given:
        raise UsageError(f"{given[0]}: nothing is started where logs are written by --pods")
    where = _folder("--out", out)
    if pods is None or where is None:
        raise UsageError("--pods and --out: give both")
    from mx_demo.fleet import duration, write_fleet

    fleet = write_fleet(where, pods, start=time.time() - duration(pods), seed=seed or 0)
    click.echo(
        f"{fleet.loads} loads of {fleet.pods} pods with {fleet.ranks} ranks: "
        f"{fleet.size / 1000:.0f} kB in {where}, {fleet.size / fleet.loads / 1000:.1f} kB a load"
    )
    click.echo(f"""
  mx-metrics replay '{where}/*'    # the metrics of all of them
  mx-metrics check '{where}/*'     # whether their logs are whole""")
    return 0


def _folder(option: str, given: str | None) -> Path | None:
    """A folder that is made, or was empty."""
    if given is None:
        return None
    path = Path(given)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if os.listdir(path):
            raise UsageError(f"{option}: {given} is not empty; name a new folder")
    except (OSError, ValueError) as error:
        raise UsageError(f"{option}: {given} cannot be made: {error}") from None
    return path
