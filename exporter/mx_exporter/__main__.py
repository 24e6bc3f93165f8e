"""``mx-metrics`` and ``python -m mx_exporter``: the command line, or how to install it."""

from __future__ import annotations

import sys

from .cli.extras import PACKAGES


def main() -> int:
    """Run the command line; returns the exit code."""
    try:
        from .cli.main import main as run

        return run()
    except ModuleNotFoundError as error:
        missing = PACKAGES.get((error.name or "").partition(".")[0])
        if missing is None:
            raise
        print(  # noqa: T201 - there may be no library to print with
            f"mx-metrics: the package {missing} is missing; "
            "install the exporter with: pip install 'mx-metrics[exporter]'",
            file=sys.stderr,
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
