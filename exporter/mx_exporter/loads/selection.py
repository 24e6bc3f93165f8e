"""Which loads are meant."""

from __future__ import annotations

from msgspec import Struct

from .model import Load


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
        process = load.process
        pod = process.pod or process.place
        return (
            (not self.since or load.began >= self.since)
            and (not self.until or load.began < self.until)
            and (not self.pods or bool(self.pods & {pod, f"{process.namespace}/{pod}"}))
            and (not self.nodes or process.node in self.nodes)
            and (not self.ranks or load.rank in self.ranks)
            and (not self.models or load.model in self.models)
            and (not self.engines or load.engine in self.engines)
            and (not self.schemes or load.scheme in self.schemes)
            and (not self.outcomes or load.outcome in self.outcomes)
        )
