"""How long after its write an event is folded, in milliseconds: idling_noticing.py DIRECTORY COUNT

The whole of the exporter but its endpoint runs here, since a scrape reads by itself and so must
not be what looks: directory, notifications, event loop, worker, fold. Single events are written
now and then to a segment that stays open, and the fold's count of events is watched. Prints the
figures as a JSON array.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time

from mx_emitter import get_logger
from mx_exporter.config import Directory, Settings
from mx_exporter.core.builtin import CATALOG
from mx_exporter.directory.maintenance import Maintenance
from mx_exporter.service.pipeline import Pipeline
from mx_exporter.service.scheduler import Scheduler

#: Seconds between two events: from, to. No multiple of how often the exporter looks by itself.
PAUSE = (0.15, 0.3)


def noticed(pipeline: Pipeline, count: int) -> list[float]:
    """The figures of so many events, for a pipeline that runs in another thread."""
    chance = random.Random(1)
    log = get_logger()
    follower = pipeline._follower
    figures = []
    for _ in range(count):
        time.sleep(chance.uniform(*PAUSE))
        before = follower.fold.state.logged
        log.info("noticed")
        written = time.perf_counter()
        while follower.fold.state.logged == before:
            if time.perf_counter() > written + 10:
                raise TimeoutError
            time.sleep(0.0002)
        figures.append((time.perf_counter() - written) * 1e3)
    return figures


async def main(directory: str, count: int) -> None:
    settings = Settings(directory=Directory(directory, named=True))
    pipeline = Pipeline(
        CATALOG, settings, Maintenance(CATALOG, settings), lambda: scheduler.wake_soon()
    )
    scheduler = Scheduler(pipeline)
    get_logger().info("begin")
    draining = asyncio.create_task(scheduler.run_forever())
    await scheduler.ready.wait()
    figures = await asyncio.to_thread(noticed, pipeline, count)
    draining.cancel()
    await scheduler.close(pipeline.close)
    print(json.dumps(figures))


if __name__ == "__main__":
    threading.current_thread().name = "loop"
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
