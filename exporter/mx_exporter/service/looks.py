"""What the exporter shows people: values that were taken at one moment, and the pages of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson

from ..http.message import Answer
from ..loads.as_json import as_dict
from ..loads.model import Load, timestamp
from ..loads.recent import Taken
from ..pages import front, load, site, status

HTML = "text/html; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True, eq=False)
class Look:
    """Values of one moment; pages are made of them when they are asked for, in any thread.

    :ivar taken: None before the first fold is done.
    :ivar compacted: events that only the snapshot stands for.
    :ivar now: seconds since the epoch.
    :ivar failed: told the name of a section that is left out, and what it raised.
    """

    standing: status.Standing
    taken: Taken | None
    compacted: int
    now: float
    failed: Callable[[str, Exception], None]

    def answer(
        self,
        path: str,
        query: Mapping[str, str],
        between: Callable[[], object] = lambda: None,
    ) -> Answer | None:
        """The page of a path; None where there is none.

        :param between: called again and again while it is made, so that others may go on.
        """
        if path == "/status":
            return _html(status.page(self.standing, self.failed))
        kept = self._kept(between)
        if path == "/":
            return _html(front.page(self.standing, kept, query, self.failed, between))
        if path == "/loads.json":
            return Answer(_json(kept, self.now, between), JSON)
        load_id = path.removeprefix("/loads/")
        known = [each for each in (*kept.running, *kept.over) if each.load_id == load_id]
        page = load.page(load_id, known, self.standing.settings.directory.path)
        return _html(page, HTTPStatus.OK if known else HTTPStatus.NOT_FOUND)

    def _kept(self, between: Callable[[], object]) -> front.Kept:
        if self.taken is None:
            return front.Kept()
        loads = self.taken.tell(timestamp(self.now), between)
        return front.Kept(
            over=[load for load in loads if load.outcome != "running"],
            running=[load for load in loads if load.outcome == "running"],
            before=self.taken.before,
            compacted=self.compacted,
        )


def _html(page: bytes, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(page, HTML, status, (("content-security-policy", site.header_policy()),))


def _json(kept: front.Kept, now: float, between: Callable[[], object]) -> bytes:
    def objects(loads: Iterable[Load]) -> Iterator[dict[str, Any]]:
        for each in loads:
            between()
            yield as_dict(each)

    return orjson.dumps(
        {
            "now": now,
            "running": list(objects(kept.running)),
            "loads": list(objects(kept.over)),
            "not_listed": kept.before,
            "events_in_snapshot": kept.compacted,
        }
    )
