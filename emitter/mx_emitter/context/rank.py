"""Which rank we are: what the engine said, else torch.distributed, else the environment."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Mapping

from mx_log.values import whole_number

#: Asked in this order.
VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "LOCAL_RANK")


def as_rank(value: object) -> int | None:
    """A rank as an int, or None for what is none (negative, no integer, a boolean)."""
    if type(value) is bool:
        return None
    try:
        rank = operator.index(value)  # type: ignore[arg-type]
    except Exception:
        return None
    return rank if 0 <= rank < 2**63 else None


def find_rank(environ: Mapping[str, str] | None = None) -> tuple[int | None, str]:
    """The rank and where it came from, ``(None, "nowhere")`` when nothing tells. Never raises.

    torch is looked at only when somebody else has imported it already.
    """
    rank = from_torch()
    if rank is not None:
        return rank, "torch.distributed"
    if environ is None:
        environ = os.environ
    for name in VARIABLES:
        try:
            rank = as_rank(whole_number(environ.get(name, "").strip()))
        except ValueError:
            continue
        if rank is not None:
            return rank, name
    return None, "nowhere"


def from_torch() -> int | None:
    """The rank of torch.distributed, where it is imported and initialised. Never raises."""
    try:
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available():
            return None
        return as_rank(distributed.get_rank()) if distributed.is_initialized() else None
    except Exception:  # half imported, or taken down
        return None
