"""Expected speed of islands that leave and come back, in closed form.

Islands are present independently of each other, with the shares of time `Leaving.present`, so that a set S of them is present
with the product of these probabilities, and gives r(S) tokens per second, those of its steady outer periods. Each leave and
each return costs tokens once. With periods much shorter than the times between changes, one change meets a steady period of T
seconds at a moment t that is uniform in it:

leave of i    the others end the period after E seconds and i gives nothing to it. Before the others end their inner steps:
              E = inner steps + rebuilt ring + exchange without i; later they wait for i, or exchange with it, and begin anew
              after the timeout. Against r(S + i) until it leaves and r(S) from then on, this costs
              r(S + i) t + r(S) (E - t) less the tokens of the others.
return of i   it waits for the end of the period; then all wait for the rebuilt ring and the live checkpoint, R + C seconds:
              (r(S + i) - r(S)) T(S) / 2 + r(S + i) (R + C).

Both are exact for one change in a steady period where islands wait for their exchanges; where exchanges run beside inner steps,
the part that is not hidden takes the place of the exchange. `simulate` with drawn absences agrees within its spread (tests)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from sim.islands.leaving import Leaving
from sim.islands.membership import TIMEOUT
from sim.islands.mesh import ElasticMesh
from sim.islands.outer_period import simulate
from sim.islands.outer_timeline import Absence, Timing
from sim.plan.islands import IslandsPlan
from sim.units import Seconds

UNCOUNTED = 1e-3
"""Probability of the sets of islands, those with most away, that are taken to give nothing; with 0, all 2^n are computed."""


@dataclass(frozen=True, slots=True)
class ElasticRate:
    """Tokens per second: with all islands at all times; of those lost because islands are away; because steps, exchanges and
    timeouts are lost when they leave; and because others wait when they come back."""

    full: float
    away: float
    leaves: float
    returns: float

    @property
    def useful(self) -> float:
        """Tokens per second in the long run; at least 0."""
        return max(self.full - self.away - self.leaves - self.returns, 0.0)

    @property
    def goodput(self) -> float:
        """Share of the tokens of islands that never leave."""
        return self.useful / self.full


@dataclass(frozen=True, slots=True)
class Steady:
    """Steady outer periods of a set of islands: seconds, of which the inner steps of the slowest take `inner`, and tokens."""

    period: Seconds
    inner: Seconds
    tokens: float

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.period if self.tokens else 0.0


class SteadyPeriods:
    """Steady periods of sets of islands, each simulated once."""

    def __init__(self, plan: IslandsPlan, timing: Timing, mesh: ElasticMesh):
        self.plan, self.timing = plan, replace(timing, mesh=mesh)
        self._found: dict[Set[int], Steady] = {frozenset(): Steady(0.0, 0.0, 0.0)}

    def of(self, present: Set[int]) -> Steady:
        """The steady periods of the islands present."""
        if present not in self._found:
            gone = tuple(Absence(index, 0.0) for index in range(len(self.plan.islands)) if index not in present)
            timeline, steps = simulate(self.plan, self.timing, gone), self.plan.sync.inner_steps
            self._found[present] = Steady(
                max(timeline.period_s(index) for index in present),
                steps * max(self.timing.inner[index] for index in present),
                steps * sum(self.plan.islands[index].workload.tokens for index in present),
            )
        return self._found[present]


def expected(plan: IslandsPlan, timing: Timing, mesh: ElasticMesh, leaving: Sequence[Leaving]) -> ElasticRate:
    """Expected tokens per second of islands that leave and come back; `timing` as for a simulation without absences."""
    sets = SteadyPeriods(plan, timing, mesh)
    everyone = frozenset(range(len(plan.islands)))
    shares = dict(_likely(leaving))
    full, mean = sets.of(everyone).rate, sum(share * sets.of(present).rate for present, share in shares.items())
    leaves = returns = 0.0
    for present, share in shares.items():
        for island in present:  # a set with the island is left at the rate of its leaves, and its returns are as many
            one, others = leaving[island], present - {island}
            per_second = share / one.present * one.rate
            leaves += per_second * _leave(sets.of(present), sets.of(others), mesh, len(others))
            returns += per_second * _return(sets.of(present), sets.of(others), mesh, island, others)
    return ElasticRate(full, full - mean, leaves, returns)


def _likely(leaving: Sequence[Leaving]) -> Iterator[tuple[Set[int], float]]:
    """Sets of islands present, and their probability, those with fewest away first, until `UNCOUNTED` is left."""
    left = 1.0
    everyone = frozenset(range(len(leaving)))
    for away in range(len(leaving) + 1):
        for gone in itertools.combinations(everyone, away):
            share = math.prod(1 - one.present if index in gone else one.present for index, one in enumerate(leaving))
            if share:
                yield everyone - set(gone), share
            left -= share
        if left <= UNCOUNTED:
            return


def _leave(before: Steady, after: Steady, mesh: ElasticMesh, others: int) -> float:
    """Tokens that a leave costs."""
    if not others:
        return before.rate * before.period / 2
    exchange = after.period - after.inner
    again = mesh.rebuild_s(others) + exchange
    computing, waiting = min(after.inner, before.period), max(before.period - after.inner, 0.0)
    mean_left = before.period / 2
    # mean seconds from the leave to the end of the period: (inner + again - t) before the others wait, timeout + again later
    mean_rest = (computing * (after.inner + again - computing / 2) + waiting * (TIMEOUT + again)) / before.period
    return before.rate * mean_left + after.rate * mean_rest - after.tokens


def _return(with_it: Steady, before: Steady, mesh: ElasticMesh, island: int, others: Set[int]) -> float:
    """Tokens that a return costs."""
    if not others:
        return 0.0
    pause = mesh.rebuild_s(len(others) + 1) + mesh.seconds(mesh.checkpoint(island, others))
    return (with_it.rate - before.rate) * before.period / 2 + with_it.rate * pause
