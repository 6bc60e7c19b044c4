"""Candidates that wait for their simulation, ordered by an estimate of what the simulation will say.

The evaluator prices a pipeline on an idle network. The simulation adds contention: messages that share a link. Its amount is
learned from the candidates simulated so far: a candidate is expected to lose the same fraction of its busiest link's message
time as the best simulated one of its kind (equal degrees and number of stages), and nothing where there is none. This is a
heuristic order and no bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from planner.search.candidates import Draft
from planner.space.shapes import Shape
from sim.units import Seconds

Kind: TypeAlias = tuple[object, ...]
Pipeline: TypeAlias = tuple[Shape, tuple[tuple[str, int], ...]]


@dataclass(slots=True)
class Pool:
    """Candidates by their pipeline; contention of each kind: the least fraction seen of the busiest link's message time."""

    drafts: dict[Pipeline, Draft] = field(default_factory=dict)
    contention: dict[Kind, float] = field(default_factory=dict)

    def add(self, found: Iterable[Draft], cutoff: Seconds) -> None:
        """Keep candidates whose step on an idle network is below `cutoff`."""
        self.drafts |= {(draft.shape, draft.stages): draft for draft in found if draft.seconds < cutoff}

    def expected(self, draft: Draft, unknown: float = 0.0) -> Seconds:
        """Estimate of the simulated step; `unknown` is the contention of a kind of which none was simulated."""
        return draft.seconds + self.contention.get(_kind(draft), unknown) * draft.through

    def take(self, cutoff: Seconds) -> Draft | None:
        """Remove and return the candidate with the least estimate; drop those at or above `cutoff` on an idle network."""
        self.drafts = {pipeline: draft for pipeline, draft in self.drafts.items() if draft.seconds < cutoff}
        least = min(self.drafts, key=lambda pipeline: self.expected(self.drafts[pipeline]), default=None)
        return self.drafts.pop(least) if least is not None else None

    def learn(self, draft: Draft, seconds: Seconds) -> None:
        """Record the simulated step of a candidate."""
        if draft.through > 0:
            fraction = max(seconds - draft.seconds, 0.0) / draft.through
            self.contention[_kind(draft)] = min(fraction, self.contention.get(_kind(draft), fraction))


def _kind(draft: Draft) -> Kind:
    shape = draft.shape
    return shape.tp, shape.dp, shape.cp, shape.ep, shape.zero_stage, shape.overlap_param_gather, len(draft.row)
