"""What the tests share. ``from tests import support`` gives what most of them need.

Nothing that is imported here knows the emitter or the exporter, so that a fault of theirs cannot
hide in the tools that find it. Modules that do know them are imported by name:

- `serving`, `compacting`, `running`: real exporters; `pages`: the text that they serve.
- `folding`: logs folded in this process, and their pages.
- `emitting`: what the emitter wrote; `emitter_fixtures`: an emitter for each test.
- `writers`, `load_logs`, `envelopes`, `strategies`: logs, written without the emitter.
- `crashing`, `soaking`, `books`: ranks and exporters that are killed, and what must hold.
- `programs`: scripts that run as processes of their own.
"""

from __future__ import annotations

from tests.support.basics import (
    DEPLOY,
    ROOT,
    SOON,
    clean_environment,
    free_port,
    is_products,
    leave_out,
    take_all_room,
    tool,
    unshare,
    wait_until,
)
from tests.support.log_lines import Lines
from tests.support.processes import Process, Spawner
from tests.support.servers import Prometheus, Pushgateway

__all__ = [
    "DEPLOY",
    "ROOT",
    "SOON",
    "Lines",
    "Process",
    "Prometheus",
    "Pushgateway",
    "Spawner",
    "clean_environment",
    "free_port",
    "is_products",
    "leave_out",
    "take_all_room",
    "tool",
    "unshare",
    "wait_until",
]
