"""The client's endpoint, as its release 0.7.0 opens it: scraping_client.py DIRECTORY PORT"""

from __future__ import annotations

import sys
import threading

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector

registry = CollectorRegistry()
MultiProcessCollector(registry, path=sys.argv[1])
start_http_server(int(sys.argv[2]), addr="127.0.0.1", registry=registry)
threading.Event().wait()
