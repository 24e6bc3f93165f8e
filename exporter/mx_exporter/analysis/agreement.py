"""Whether the page of a live exporter agrees with its log.

The exporter is asked before the log is read, and once more afterwards, since ranks go on logging.
What only grows has to lie between both answers. A gauge has to be as in one of them, unless events
came in between. A load whose process was just killed is in progress for ten seconds to an exporter,
and abandoned at once to whoever reads the log: of these two families their sum is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http.client import HTTPException
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families

from ..core.catalog import ABANDONED, IN_PROGRESS, Catalog
from ..core.state import State
from ..errors import MxError
from ..exposition.samples import derived_families
from ..exposition.text import labels_text, number_text, render
from ..push.post import target

#: Seconds that a scrape may take.
SCRAPE_SECONDS = 30.0

#: Families of which an exporter says that it leaves series out.
_HIDDEN = "mx_exporter_series_refused_total"

_LOGGED = "mx_exporter_events_logged_total"

#: A sample's name and its labels.
Key = tuple[str, tuple[tuple[str, str], ...]]
Samples = Mapping[Key, float]

#: Stands for the two families of loads.
_LOADS = "loads in progress or abandoned"


class Difference(NamedTuple):
    """A sample on which exporter and log do not agree; None: one of them has none."""

    sample: str
    exporter: float | None
    log: float | None

    def __str__(self) -> str:
        shown = ("none" if v is None else number_text(v) for v in (self.exporter, self.log))
        exporter, log = shown
        return f"{self.sample}: {exporter} on the page, {log} by the log"


class Agreement(NamedTuple):
    """What a comparison found.

    :ivar url: of the page, without a user and a password.
    :ivar compared: samples that were compared.
    :ivar moved: whether events came in between, so that gauges were not.
    """

    url: str
    compared: int
    moved: bool
    differences: list[Difference]


def scrape(url: str) -> tuple[str, Samples]:
    """The address of a page, and its samples.

    :param url: of the exporter, or of its page, perhaps with a user and a password in it.
    :raises MxError: it cannot be had; the message says why.
    """
    parts = urlsplit(url)
    parts = parts._replace(path="/metrics" if parts.path in ("", "/") else parts.path)
    shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    authorization = target(url).authorization
    headers = {"Accept": "text/plain"} | ({"Authorization": authorization} if authorization else {})
    request = Request(shown, headers=headers)
    try:
        with urlopen(request, timeout=SCRAPE_SECONDS) as answer:
            page = answer.read().decode()
        return shown, _parse(page)
    except HTTPError as error:
        with error:
            why = f"it answered {error.code} {error.reason}"
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        why = str(getattr(reason, "strerror", None) or reason or type(error).__name__)
    except ValueError:
        why = "what it answered is no page of metrics"
    raise MxError(f"{shown}: the page cannot be had: {why}")


def compare(catalog: Catalog, url: str, before: Samples, state: State, after: Samples) -> Agreement:
    """Compare what an exporter showed before and after its log was read with what the log gives."""
    opt_in = any(
        name in catalog.by_name and len(labels) > len(catalog.by_name[name].label_names())
        for name, labels in after
        if name in catalog.by_name and catalog.by_name[name].has_opt_in
    )
    log = _parse(render(derived_families(catalog, state, source_id_label=opt_in)).decode())
    hidden = {labels[0][1] for (name, labels), value in after.items() if name == _HIDDEN and value}
    first, by_log, last = (_derived(catalog, each) for each in (before, log, after))
    moved = _logged(before) != _logged(after)
    differences = []
    for key in sorted(first.keys() | by_log.keys() | last.keys()):
        low, value, high = first.get(key), by_log.get(key), last.get(key)
        if value is None and low is None:
            continue  # it came in between
        name, labels = key
        if _family(catalog, name) in hidden and high is None:
            continue
        if value is None or high is None or not _agrees(name, low, value, high, moved=moved):
            differences.append(Difference(f"{name}{labels_text(labels)}", high, value))
    return Agreement(url, len(by_log), moved, differences)


def _agrees(name: str, low: float | None, value: float, high: float, *, moved: bool) -> bool:
    if name.endswith(("_total", "_bucket", "_count", "_sum")):
        low = 0.0 if low is None else low
        return min(low, high) <= value <= max(low, high)
    return moved or value in (low, high)


def _parse(page: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def _derived(catalog: Catalog, samples: Samples) -> dict[Key, float]:
    """Those that are derived from a log."""
    loads = {f.name for f in catalog.families if f.measure in (IN_PROGRESS, ABANDONED)}
    found: dict[Key, float] = {}
    for (name, labels), value in samples.items():
        if name in loads:
            found[_LOADS, labels] = found.get((_LOADS, labels), 0.0) + value
        elif not name.startswith(("mx_exporter_", "process_", "python_")):
            found[name, labels] = value
    return found


def _family(catalog: Catalog, name: str) -> str:
    for suffix in ("", "_bucket", "_count", "_sum"):
        bare = name.removesuffix(suffix)
        if bare in catalog.by_name:
            return bare
    return name


def _logged(samples: Samples) -> float | None:
    return samples.get((_LOGGED, ()))


def as_lines(agreement: Agreement, most: int) -> Iterable[str]:
    """The comparison in words, with so many differences."""
    url, compared, moved, differences = agreement
    if not differences:
        gauges = "; gauges were not compared, since events came in between" if moved else ""
        yield f"{url} agrees with the log: {compared} samples{gauges}"
        return
    yield f"{url} differs from the log in {len(differences)} of {compared} samples"
    for difference in differences[:most]:
        yield f"  {difference}"
    if len(differences) > most:
        yield f"  … {len(differences) - most} more"
