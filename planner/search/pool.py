"""The pool: candidates that wait for their simulation, ordered by an estimate of the simulated step.

The evaluator gives the step on an idle network. The simulation adds contention between messages that share a link. Contention
is measured as a fraction: simulated step minus evaluated step, divided by the message time of the busiest link. A candidate is
expected to have the least contention of the simulated candidates of its kind (`Kind`); of one with a larger microbatch size,
only the part that the sizes have in common, because its messages are shorter (a guess: half the size had 0.3 to 1 times the
contention on shipped topologies). Where there are none, most of that of the kind that differs only in whether parameter gathers
overlap is expected (`ALIKE`), or a default. This is a heuristic order and no bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from planner.search.candidates import Candidate
from planner.space.shape import Shape
from sim.units import Seconds

LIKELY = 0.02
"""Fraction by which an expected step may be above the best one and still be simulated (a guess): candidates of one kind have
unlike contention. A larger one simulates more."""

ALIKE = 0.8
"""Fraction of the contention of one kind that is expected of the kind that differs only in `overlap_param_gather` (a guess: it
was 0.85 to 1.05 in searches of `mixed-age` and `holmes-uneven-8`). A smaller one simulates more."""

Kind: TypeAlias = tuple[object, ...]
"""Degrees, ZeRO stage, whether parameter gathers overlap with the forwards, and number of stages."""
Key: TypeAlias = tuple[Shape, tuple[tuple[str, int], ...]]
"""Shape and (cluster, layers) of each stage."""


@dataclass(slots=True)
class Pool:
    """`candidates` by shape and stages; `contention` by kind and microbatch size: the least fraction observed, of the busiest
    link's message time; `simulated`: what was simulated, in more detail (`_close_kind`)."""

    candidates: dict[Key, Candidate] = field(default_factory=dict)
    contention: dict[Kind, dict[int, float]] = field(default_factory=dict)
    simulated: set[Kind] = field(default_factory=set)

    def add(self, found: Iterable[Candidate], cutoff: Seconds) -> None:
        """Keep candidates whose step on an idle network is below `cutoff`."""
        self.candidates |= {(candidate.shape, candidate.stages): candidate for candidate in found if candidate.seconds < cutoff}

    def expected(self, candidate: Candidate, unknown: float = 0.0) -> Seconds:
        """Estimated seconds of the simulated step; `unknown` is the contention of a kind of which no candidate was
        simulated."""
        return candidate.seconds + self._contention(candidate, unknown) * candidate.link_seconds

    def _contention(self, candidate: Candidate, unknown: float) -> float:
        """The expected contention, as a fraction of the busiest link's message time."""
        kind, other = _kind(candidate), _kind(candidate, other_gather=True)
        if kind in self.contention:
            return self._observed(kind, candidate.shape.microbatch_size)
        return ALIKE * self._observed(other, candidate.shape.microbatch_size) if other in self.contention else unknown

    def _observed(self, kind: Kind, size: int) -> float:
        """The contention that a known kind is expected to have with a microbatch size."""
        return min(fraction * min(size / other, 1.0) for other, fraction in self.contention[kind].items())

    def take(self, cutoff: Seconds) -> Candidate | None:
        """Remove and return the candidate with the least estimate; drop those at or above `cutoff` on an idle network.

        None where the least estimate is above `cutoff` by more than `LIKELY`."""
        self.candidates = {key: candidate for key, candidate in self.candidates.items() if candidate.seconds < cutoff}
        least = min(self.candidates, key=lambda key: self.expected(self.candidates[key]), default=None)
        if least is None or self.expected(self.candidates[least]) > cutoff * (1 + LIKELY):
            return None
        return self.candidates.pop(least)

    def take_doubtful(self, target: Seconds) -> Candidate | None:
        """Remove and return the fastest candidate on an idle network of those unlike all that were simulated: what is expected
        of it was observed under another schedule, vpp or microbatch size. None where none is below `target`."""
        every = ((key, one) for key, one in self.candidates.items() if one.seconds < target)
        unlike = {key: one.seconds for key, one in every if _close_kind(one) not in self.simulated}
        return self.candidates.pop(min(unlike, key=unlike.__getitem__)) if unlike else None

    def learn(self, candidate: Candidate, seconds: Seconds) -> None:
        """Record the seconds of a candidate's simulated step."""
        self.simulated.add(_close_kind(candidate))
        if candidate.link_seconds > 0:
            fraction = max(seconds - candidate.seconds, 0.0) / candidate.link_seconds
            of_kind, size = self.contention.setdefault(_kind(candidate), {}), candidate.shape.microbatch_size
            of_kind[size] = min(fraction, of_kind.get(size, fraction))


def _kind(candidate: Candidate, other_gather: bool = False) -> Kind:
    """The kind of a candidate, or the one that differs only in `overlap_param_gather`."""
    shape = candidate.shape
    gather = shape.overlap_param_gather != other_gather
    return (
        shape.tp,
        shape.cluster_tp,
        shape.dp,
        shape.cp,
        shape.ep,
        shape.etp,
        shape.zero_stage,
        gather,
        len(candidate.pipeline),
    )


def _close_kind(candidate: Candidate) -> Kind:
    """The kind of a candidate with what is left out of it: schedule, vpp and microbatch size."""
    shape = candidate.shape
    return (*_kind(candidate), shape.schedule, shape.vpp, shape.microbatch_size)
