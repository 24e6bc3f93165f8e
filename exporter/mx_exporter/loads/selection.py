"""Which loads are meant."""

from __future__ import annotations

from msgspec import Struct

from .model import Load, Process


class Selection(Struct, frozen=True, kw_only=True):
    """Conditions that a load has to meet, each of them; one that is empty is met by all.

    Those that name values are met by a load that has one of them. A load lies where it began.
    """

    #: Timestamps as lines have them: from the first on, and before the second.
    since: str = ""
    until: str = ""
    #: The name of a pod, or its ``namespace/name``.
    pods: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    ranks: frozenset[int] = frozenset()
    models: frozenset[str] = frozenset()
    engines: frozenset[str] = frozenset()
    schemes: frozenset[str] = frozenset()
    #: Of `model.OUTCOMES`.
    outcomes: frozenset[str] = frozenset()

    def admits(self, load: Load) -> bool:
        """Whether a load meets them."""
        return (
            (not self.since or load.began >= self.since)
            and (not self.until or load.began < self.until)
            and self.admits_process(load.process)
            and self.admits_line(load.rank, load.scheme)
            and self.admits_named(load.model, load.engine)
            and (not self.outcomes or load.outcome in self.outcomes)
        )

    def admits_process(self, process: Process) -> bool:
        """Whether a process ran where they say."""
        pod = process.pod or process.place
        return (not self.pods or bool(self.pods & {pod, f"{process.namespace}/{pod}"})) and (
            not self.nodes or process.node in self.nodes
        )

    def admits_line(self, rank: int | None, scheme: str) -> bool:
        """Whether a line with this rank and scheme meets what they say of these."""
        return (not self.ranks or rank in self.ranks) and (
            not self.schemes or scheme in self.schemes
        )

    def admits_named(self, model: str | None, engine: str | None) -> bool:
        """Whether a load of this model by this engine meets what they say of these."""
        return (not self.models or model in self.models) and (
            not self.engines or engine in self.engines
        )


#: Without conditions.
EVERY = Selection()
