"""``mx-metrics`` and ``python -m mx_exporter``: the command line, or how to install it."""

from __future__ import annotations

import sys

from .cli.extras import how_to_install


def main() -> int:
    """Run the command line; returns the exit code."""
    try:
        from .cli.main import main as run

        return run()
    except ModuleNotFoundError as error:
        missing = how_to_install((error.name or "").partition(".")[0])
        if missing is None:
            raise
        # There may be no library to print with.
        print(f"mx-metrics: {missing}", file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
