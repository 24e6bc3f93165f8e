"""``mx-metrics catalog``: the families there are, as a file of families has them."""

from __future__ import annotations

import click

from ..config import read_settings
from .options import settings_options
from .stdio import put


@click.command()
@settings_options("catalog")
def catalog(**flags: str | bool | None) -> int:
    """Print the families, in the terms of a file that --catalog takes.

    With such a file, those in it come after the built-in ones.
    """
    settings = read_settings(flags, names=["catalog"])
    from ..tables.read import catalog_of
    from ..tables.write import toml

    put(toml(catalog_of(settings.catalog).families).encode())
    return 0
