"""Figures of loads in a file, to compare with later: ``mx-metrics diff --save``."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from mx_log.schema import VERSION

from ..errors import MxError
from ..loads.measured import Measured
from .compare import Side

#: How a file begins that holds a baseline.
_MAGIC = b'{"mx_metrics_baseline":'

_FORMAT = 1


class _Baseline(Struct):
    mx_metrics_baseline: int
    written_by: str
    name: str
    loads: list[Measured]


def is_baseline(path: str) -> bool:
    """Whether a file holds a baseline."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def dump(side: Side) -> bytes:
    """A baseline of loads: their figures, and nothing else of them."""
    return msgspec.json.encode(_Baseline(_FORMAT, VERSION, side.name, side.loads)) + b"\n"


def load(path: str) -> Side:
    """Read a baseline.

    :raises MxError: it cannot be read, or is of another format.
    """
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=_Baseline)
    except OSError as error:
        raise MxError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MxError(f"{path}: damaged baseline: {error}; save it again") from None
    if found.mx_metrics_baseline != _FORMAT:
        raise MxError(
            f"{path}: a baseline of format {found.mx_metrics_baseline}, of mx-metrics "
            f"{found.written_by}; this one reads {_FORMAT}"
        )
    return Side(found.name, found.loads)
