"""The commands that read logs."""

from __future__ import annotations

from tests.support.commands import checked, run

__all__ = ["checked", "run"]
