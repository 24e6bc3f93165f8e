"""Print what the client's multiprocess mode would serve for a directory: collect.py DIRECTORY"""

from __future__ import annotations

import sys

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

registry = CollectorRegistry()
MultiProcessCollector(registry, path=sys.argv[1])
sys.stdout.buffer.write(generate_latest(registry))
