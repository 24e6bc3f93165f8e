"""What a command that runs for long says, on standard error."""

from __future__ import annotations

import logging
import sys
import time


def log_to_stderr(who: str = "") -> None:
    """Log to standard error, one line a message; other libraries only from warnings on.

    :param who: stands in each line, where other programs write to the same place. The first call
        of a process counts.
    """
    formatter = logging.Formatter(f"%(asctime)s.%(msecs)03dZ {who}%(levelname)s %(message)s")
    formatter.datefmt = "%Y-%m-%dT%H:%M:%S"
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("mx_exporter").setLevel(logging.INFO)
