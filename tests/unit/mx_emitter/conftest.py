"""Each test here gets an emitter of its own."""

from __future__ import annotations

from tests.support.emitter_fixtures import log, program, undecided

__all__ = ["log", "program", "undecided"]
