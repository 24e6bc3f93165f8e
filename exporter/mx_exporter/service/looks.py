"""What the exporter shows people: values that were taken at one moment, and the pages of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

import orjson

from ..http.message import Answer
from ..loads.listing import Kept, listing
from ..loads.model import timestamp
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
            return Answer(orjson.dumps(listing(kept, self.now, query.get("id"), between)), JSON)
        load_id = path.removeprefix("/loads/")
        known = [each for each in (*kept.running, *kept.over) if each.load_id == load_id]
        page = load.page(load_id, known, self.standing.settings.directory.path)
        return _html(page, HTTPStatus.OK if known else HTTPStatus.NOT_FOUND)

    def _kept(self, between: Callable[[], object]) -> Kept:
        if self.taken is None:
            return Kept()
        loads = self.taken.tell(timestamp(self.now), between)
        return Kept.of(loads, self.taken.before, self.compacted)


def _html(page: bytes, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(page, HTML, status, (("content-security-policy", site.header_policy()),))
