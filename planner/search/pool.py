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

from planner.search.candidates import Candidate
from planner.space.shapes import Shape
from sim.units import Seconds

Kind: TypeAlias = tuple[object, ...]
Pipeline: TypeAlias = tuple[Shape, tuple[tuple[str, int], ...]]


@dataclass(slots=True)
class Pool:
    """Candidates by their pipeline; contention of each kind: the least fraction seen of the busiest link's message time."""

    candidates: dict[Pipeline, Candidate] = field(default_factory=dict)
    contention: dict[Kind, float] = field(default_factory=dict)

    def add(self, found: Iterable[Candidate], cutoff: Seconds) -> None:
        """Keep candidates whose step on an idle network is below `cutoff`."""
        self.candidates |= {(candidate.shape, candidate.stages): candidate for candidate in found if candidate.seconds < cutoff}

    def expected(self, candidate: Candidate, unknown: float = 0.0) -> Seconds:
        """Estimate of the simulated step; `unknown` is the contention of a kind of which none was simulated."""
        return candidate.seconds + self.contention.get(_kind(candidate), unknown) * candidate.link_seconds

    def take(self, cutoff: Seconds) -> Candidate | None:
        """Remove and return the candidate with the least estimate; drop those at or above `cutoff` on an idle network."""
        self.candidates = {pipeline: candidate for pipeline, candidate in self.candidates.items() if candidate.seconds < cutoff}
        least = min(self.candidates, key=lambda pipeline: self.expected(self.candidates[pipeline]), default=None)
        return self.candidates.pop(least) if least is not None else None

    def learn(self, candidate: Candidate, seconds: Seconds) -> None:
        """Record the simulated step of a candidate."""
        if candidate.link_seconds > 0:
            fraction = max(seconds - candidate.seconds, 0.0) / candidate.link_seconds
            self.contention[_kind(candidate)] = min(fraction, self.contention.get(_kind(candidate), fraction))


def _kind(candidate: Candidate) -> Kind:
    shape = candidate.shape
    return shape.tp, shape.dp, shape.cp, shape.ep, shape.zero_stage, shape.overlap_param_gather, len(candidate.pipeline)
