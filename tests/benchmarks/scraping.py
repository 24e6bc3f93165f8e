"""A scrape, by how many processes ever lived: ours, and the client's multiprocess mode.

The page is asked for over HTTP, a connection a scrape, of a server that is a process of its own,
on a directory where 8, 64 or 512 processes each lived and made one load. Nothing changes there
meanwhile. Both pages say the same.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from measuring import AT_MOST, Row, alternating, ratios
from scraping_parts import HERE, Server, exporter, folder, lives, samples, serving

#: Lifetimes: what a scrape may take of the client's, rounds, and the client's scrapes in each.
SIZES = {8: (0.5, 15, 20), 64: (0.1, 11, 4), 512: (0.015, 7, 1)}

#: Our scrapes in each round.
SCRAPES = 50


def rows() -> Iterator[Row]:
    """The rows of a scrape."""
    with folder() as place, contextlib.ExitStack() as running:
        with ThreadPoolExecutor(2) as both:
            for made in [
                both.submit(lives, side, count, place / f"{side}-{count}")
                for count in sorted(SIZES, reverse=True)
                for side in ("client", "ours")
            ]:
                made.result()
        ours = {}
        for count in SIZES:
            ours[count] = running.enter_context(serving(exporter(place / f"ours-{count}")))
        for count, (target, rounds, scrapes) in SIZES.items():
            with serving(_client(place / f"client-{count}")) as theirs:
                _agree(ours[count], theirs)
                mine, others = alternating(
                    partial(ours[count].seconds, SCRAPES),
                    partial(theirs.seconds, scrapes),
                    rounds,
                )
            yield Row(
                f"a scrape, {count} lifetimes",
                "the client's MultiProcessCollector",
                ratios(mine, others),
                "x",
                AT_MOST,
                target,
                _took(mine),
                _took(others),
            )
        many, few = max(SIZES), min(SIZES)
        mine, others = alternating(
            partial(ours[many].seconds, 4 * SCRAPES), partial(ours[few].seconds, 4 * SCRAPES), 15
        )
        yield Row(
            f"a scrape, {many} lifetimes",
            f"our own, {few} lifetimes",
            ratios(mine, others),
            "x",
            AT_MOST,
            1.2,
            _took(mine),
            _took(others),
        )


def _client(directory: Path) -> Callable[[int], list[str]]:
    return lambda port: [
        sys.executable,
        str(HERE / "scraping_client.py"),
        str(directory),
        str(port),
    ]


def _took(seconds: list[float]) -> str:
    return f"{sorted(seconds)[len(seconds) // 2] * 1e3:.2f} ms"


def _agree(ours: Server, theirs: Server) -> None:
    """All that the client's page says, ours says too: what is compared is the same work.

    Raises AssertionError.
    """
    mine, expected = samples(ours.get()), samples(theirs.get())
    assert expected, "the client's page is empty"
    for name, value in expected.items():
        assert name in mine, f"{name} is not on our page"
        assert abs(mine[name] - value) <= 1e-9 * abs(value), (name, mine[name], value)
