"""The commands that read logs."""

from __future__ import annotations

from tests.support.commands import checked, mx_metrics, run

__all__ = ["checked", "mx_metrics", "run"]
