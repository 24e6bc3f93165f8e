"""The published ModelExpress client, whose recorders are routed to the log."""

from __future__ import annotations

from .routing import install, route

__all__ = ["install", "route"]
