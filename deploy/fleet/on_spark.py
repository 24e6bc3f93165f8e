"""Fold a fleet on Spark: spark-submit on_spark.py STATES LOGS...

LOGS are a directory a pod, STATES is a new directory; both have the same names on all nodes, on
which mx-metrics is installed. The page goes to standard output.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

#: Directories that a task folds.
LOGS_EACH = 50


def fold(part: tuple[str, list[str]]) -> str:
    """The state of some logs."""
    state, logs = part
    command = ["mx-metrics", "replay", "--jobs", "1", *logs, "--save-state", state]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return state


def main(place: Path, logs: list[str]) -> None:
    """Fold, merge, and print."""
    place.mkdir(parents=True, exist_ok=True)
    parts = [
        (str(place / f"{at}.state"), logs[at : at + LOGS_EACH])
        for at in range(0, len(logs), LOGS_EACH)
    ]
    spark = SparkSession.builder.appName("mx-metrics").getOrCreate()
    states = spark.sparkContext.parallelize(parts, len(parts)).map(fold).collect()
    spark.stop()
    subprocess.run(["mx-metrics", "merge", *states], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), [str(Path(log).resolve()) for log in sys.argv[2:]])
