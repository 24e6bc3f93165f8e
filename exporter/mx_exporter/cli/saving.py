"""Writing the state of a fold into a file, for ``mx-metrics merge``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from .options import complete
from .output import Output

if TYPE_CHECKING:
    from ..core.catalog import Catalog
    from ..core.saved_state import SavedState

#: Where a command writes the state of what it folded, as its argument ``save_state``.
save_state_option = click.option(
    "--save-state",
    metavar="FILE",
    shell_complete=complete("file"),
    help="Write the state into FILE as well, for merge; it is there whole or not at all.",
)


def check_whole(path: str, given: Mapping[str, object]) -> None:
    """See that what is saved can be merged, and lies in a file of its own.

    :param given: options that leave something out or apart, and what was given for them.
    :raises UsageError: one of them was given, or the file is standard output.
    """
    for option, value in given.items():
        if value:
            raise UsageError(
                f"--save-state and {option} exclude each other: a state that is to be merged "
                "is of all loads and all series"
            )
    if path == "-":
        raise UsageError("--save-state: standard output gets the page; name a file")


def write_state(path: str, catalog: Catalog, saved: SavedState) -> None:
    """Write a state into its file.

    :raises MxError: it cannot be written, or is too large.
    """
    from ..core.saved_state import dump

    with Output(path) as file:
        file.write(dump(catalog, saved))
