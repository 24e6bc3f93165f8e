"""Run a command and say, as the last line of standard error, how many seconds it took, its peak
resident memory in KiB: of the process, or of one that it started, if that had more; and the
seconds of the CPU.

A process of its own since Linux counts to a process what it was forked from, and this is small.
"""

from __future__ import annotations

import os
import sys
import time

began = time.perf_counter()
pid = os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(pid, 0)
took = time.perf_counter() - began
os.write(2, f"\n{took} {used.ru_maxrss} {used.ru_utime + used.ru_stime}".encode())
sys.exit(os.waitstatus_to_exitcode(status))
