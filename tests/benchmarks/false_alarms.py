"""How often `mx-metrics diff` shows a difference where there is none: ``make false-alarms``.

Two sets of loads are drawn from one distribution again and again, and compared. Of intervals at
95 % at most one in twenty may say that they differ.
"""

from __future__ import annotations

from mx_exporter.loads.compare import FASTER, SLOWER, difference, figures, series
from tests.support.measurements import drawn

#: Starts of pods on either side, and comparisons of each.
STARTS = (6, 10, 20, 50, 400)
TRIALS = 400


def rate(starts: int, trials: int = TRIALS) -> tuple[float, float]:
    """Shares of comparisons that show a difference of the median load, and of its 95 % quantile."""
    alarms = [0, 0]
    for trial in range(trials):
        ours, theirs = drawn(starts, 2 * trial), drawn(starts, 2 * trial + 1)
        load = figures(ours.loads)[0]
        for at, q in enumerate((0.5, 0.95)):
            found = difference(series(ours.loads, load), series(theirs.loads, load), q, seed=trial)
            alarms[at] += found.verdict in (SLOWER, FASTER)
    return alarms[0] / trials, alarms[1] / trials


if __name__ == "__main__":
    print("| starts on either side | p50 | p95 |\n| --- | --- | --- |")
    for count in STARTS:
        trials = TRIALS if count <= 50 else TRIALS // 4
        median, far = rate(count, trials)
        print(f"| {count} | {median:.1%} of {trials} | {far:.1%} |", flush=True)
