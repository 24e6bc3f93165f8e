"""The clean environment, waiting, ports, and what the machine allows."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"

#: Where ``bring_tools.sh`` and ``bring_kubectl.sh`` unpack what the machine does not have.
TOOLS = ROOT / ".venv" / "tools" / "usr" / "bin"

#: Seconds that something quick takes at most, where other processes have the cores. On a machine of
#: its own it takes less than one; what it must not wait for takes ten or more.
SOON = 5.0

#: Seconds after a test until what it started must be gone.
LEFT_BEHIND_SECONDS = 20.0

#: Variables that the product reads, or that a launcher would set for it.
PRODUCT_PREFIXES = ("MX_", "POD_")
PRODUCT_NAMES = frozenset(
    {
        "NODE_NAME",
        "RANK",
        "LOCAL_RANK",
        "OMPI_COMM_WORLD_RANK",
        "SLURM_PROCID",
        "PROMETHEUS_MULTIPROC_DIR",
        "PROMETHEUS_DISABLE_CREATED_SERIES",
        *(
            "WORKER_ID",
            "LWS_WORKER_INDEX",
            "JOB_COMPLETION_INDEX",
            "TENSOR_PARALLEL_SIZE",
            "TP_SIZE",
        ),
        *("ENGINE_VERSION", "VLLM_VERSION", "SGLANG_VERSION", "TRT_LLM_VERSION", "GPU_TYPE"),
    }
)


def is_products(name: str) -> bool:
    """Whether an environment variable would change what the product does."""
    return name.startswith(PRODUCT_PREFIXES) or name in PRODUCT_NAMES


def clean_environment(**extra: str) -> dict[str, str]:
    """A copy of the environment without the product's variables, and with ``extra``."""
    kept = {name: value for name, value in os.environ.items() if not is_products(name)}
    return {**kept, **extra}


def leave_out(reason: str) -> Any:
    """Skip this test, which is listed at the end of the run; it fails under ``MX_TEST_ALL=1``."""
    pytest.skip(reason)


def wait_until(condition: Callable[[], T], limit: float = 60.0, message: str = "") -> T:
    """Call ``condition`` until it gives something true, and return that.

    ``limit`` is in seconds and generous on purpose: it is only ever reached by a fault.
    Raises AssertionError with ``message`` when it is.
    """
    deadline = time.monotonic() + limit
    pause = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(message or f"not so within {limit:g} s; last seen: {value!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def tool(name: str, how: str = "`make tools`") -> str:
    """The path of a program; the test is left out where there is none. ``how`` it can be had."""
    found = shutil.which(name) or shutil.which(name, path=str(TOOLS))
    return found or str(leave_out(f"needs {name}, which is on no path ({how})"))


def unshare(*what: str) -> list[str]:
    """The start of a command that runs with namespaces of its own; left out where refused."""
    command = ["unshare", *what]
    try:
        done = subprocess.run([*command, "true"], capture_output=True, text=True)
    except FileNotFoundError:
        leave_out("needs unshare, of util-linux")
    if done.returncode:
        leave_out(f"namespaces are refused here: {done.stderr.strip()}")
    return command


def take_all_room(ballast: Path) -> None:
    """Fill the disk that ``ballast`` lies on, to the last page."""
    with open(ballast, "ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(mmap.PAGESIZE))


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on at the moment.

    It lies below the ports that the kernel gives to connections, and each worker of the run has a
    range of its own, so that nobody else gets it before it is used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        port = next(_PORTS)
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return port
            except OSError:
                continue


def _ports() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 10_000 + worker % 10 * 2_000
    # Another run on the same machine begins somewhere else.
    start = os.getpid() * 37 % 2_000
    while True:
        for n in range(2_000):
            yield first + (start + n) % 2_000


_PORTS = _ports()
