"""Alpa's dynamic programme: divide layers and submeshes into pipeline stages, under a bound on the slowest stage.

Alpa (Zheng et al., arXiv 2201.12023, section 5): with B microbatches and t_i seconds of one of them on stage i, choose stages
(an interval of layers on a submesh each) that minimise T = sum of t_i + (B - 1) max t_i. For each bound t_max a dynamic
programme over (stages to the end, layers left, submeshes left) finds the least sum of stages that take at most t_max each.
`divide` searches the values of t_max; `cheapest` is the programme for one of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.time_limit import TimeLimit
from sim.units import Seconds

CELLS = 150_000_000
"""Maximum number of table cells that the programmes of one request fill, a few seconds on any machine (a guess). A larger
number gives better plans for large models and fleets, and takes longer."""

Stages: TypeAlias = tuple[tuple[int, int], ...]
"""Stages in pipeline order as (index of the cluster in `offers`, layers)."""
Table: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Submeshes:
    """The submeshes of a cluster (`number` of them) and the seconds of stages on them.

    `first[s, k]` and `other[s, k]` are the seconds t of k layers on the stage that is s-th from the end of the pipeline (the
    last stage has s = 1), as first stage and as any other; infinite where s microbatches in flight do not fit the memory.
    """

    number: int
    first: Table
    other: Table

    def under(self, bound: Seconds) -> Submeshes:
        """The submeshes without stages that take longer than a bound."""
        return Submeshes(self.number, *(np.where(t <= bound, t, np.inf) for t in (self.first, self.other)))


@dataclass(slots=True)
class Work:
    """Number of table cells filled so far, and the time limit."""

    limit: TimeLimit
    cells: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the allowed number of cells or the time is used up."""
        return self.cells > CELLS or self.limit.is_up()


def divide(
    offers: Sequence[Submeshes], layers: int, microbatches: int, lengths: Sequence[int], vpp: int, work: Work
) -> tuple[Seconds, Stages] | None:
    """(T, stages) of the least T over all bounds t_max; None where nothing fits. In T, the sum of t_i is divided by vpp.

    `lengths` are the allowed numbers of stages. A larger t_max never has a larger least sum. So binary search finds the least
    feasible t_max, and the range above it is halved recursively (branch and bound). A half is pruned if its least t_max with
    the least sum at its upper end is no better than the best division so far. When `work` is over, the best division so far is
    returned."""
    bounds = sorted({float(t) for offer in offers for table in (offer.first, offer.other) for t in table[np.isfinite(table)]})
    known: dict[int, tuple[Seconds, Stages] | None] = {}

    def at(index: int) -> tuple[Seconds, Stages] | None:
        if index not in known:
            known[index] = cheapest([offer.under(bounds[index]) for offer in offers], layers, lengths, work)
        return known[index]

    if not bounds or not lengths or at(len(bounds) - 1) is None:
        return None
    low, high = -1, len(bounds) - 1  # no division under low, one under high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if at(middle) else (middle, high)
    best: tuple[Seconds, Stages] | None = None
    todo = [(high, len(bounds) - 1)]
    for index in (high, len(bounds) - 1):
        best = _better(best, at(index), bounds[index], microbatches, vpp)
    while todo and best is not None and not work.is_over:
        low, high = todo.pop()
        found = at(high)
        assert found is not None
        if high - low > 1 and (microbatches - 1) * bounds[low + 1] + found[0] / vpp < best[0]:
            middle = (low + high) // 2
            best = _better(best, at(middle), bounds[middle], microbatches, vpp)
            todo += [(middle, high), (low, middle)]
    return best


def _better(
    best: tuple[Seconds, Stages] | None, found: tuple[Seconds, Stages] | None, bound: Seconds, microbatches: int, vpp: int
) -> tuple[Seconds, Stages] | None:
    """The better of the best division so far, (T, stages), and the (least sum, stages) found under a bound."""
    if found is None:
        return best
    seconds = (microbatches - 1) * bound + found[0] / vpp
    return (seconds, found[1]) if best is None or seconds < best[0] else best


def cheapest(offers: Sequence[Submeshes], layers: int, lengths: Sequence[int], work: Work) -> tuple[Seconds, Stages] | None:
    """(sum of t, stages) of the least sum over pipelines that hold all layers and visit the clusters in the order of `offers`.

    Dynamic programme from the end of the pipeline to its start. Invariant: before cluster c (in reverse order) is considered,
    behind[s, k] is the least sum of s stages on the clusters after c that hold the last k layers, none of them the first stage.
    Stages of c are added in front one by one, up to its number; each table is also tried with a first stage in front of it.
    `taken` and `steps` record the choices, and `_walk` follows them back. None where no pipeline has finite seconds."""
    depth = max(lengths)
    behind = np.full((depth + 1, layers + 1), np.inf)
    behind[0, 0] = 0.0
    allowed = np.isin(np.arange(depth + 1), lengths)
    best, begin, steps = math.inf, None, [[np.zeros(0, np.int32)] for _ in offers]
    taken = [np.zeros((depth + 1, layers + 1), np.int32) for _ in offers]
    for at in reversed(range(len(offers))):
        offer, now = offers[at], behind
        for count in range(offer.number + 1):
            if count < offer.number:
                whole = now[:-1, ::-1] + offer.first[1 : depth + 1]  # [s - 1, k]: k layers first, the rest behind
                whole[~allowed[1:]] = np.inf
                index = int(np.argmin(whole))
                if whole.flat[index] < best:
                    best, begin = float(whole.flat[index]), (at, count, *divmod(index, layers + 1))
            better = now < behind
            behind = np.where(better, now, behind)
            taken[at][better] = count
            if count == offer.number:
                break
            now, sizes = _longer(now, offer.other[: depth + 1], work)
            if not np.isfinite(now).any():
                break
            steps[at].append(sizes)
    if begin is None:
        return None
    return best, _walk(begin, layers, taken, steps)


def _longer(now: Table, seconds: Table, work: Work) -> tuple[Table, NDArray[np.int32]]:
    """Least sums of pipelines with one more stage in front, and the layers of that stage."""
    longer, sizes = np.full_like(now, np.inf), np.zeros(now.shape, np.int32)
    rows = np.flatnonzero(np.isfinite(now[:-1]).any(axis=1))
    if not rows.size:
        return longer, sizes
    low, high = int(rows[0]), int(rows[-1]) + 1
    before, after, chosen = now[low:high], longer[low + 1 : high + 1], sizes[low + 1 : high + 1]
    for k in np.flatnonzero(np.isfinite(seconds[low + 1 : high + 1]).any(axis=0)):
        candidate = before[:, : before.shape[1] - k] + seconds[low + 1 : high + 1, k, None]
        better = candidate < after[:, k:]
        np.copyto(after[:, k:], candidate, where=better)
        np.copyto(chosen[:, k:], k, where=better)
        work.cells += candidate.size
    return longer, sizes


def _walk(
    begin: tuple[int, int, int, int],
    layers: int,
    taken: Sequence[NDArray[np.int32]],
    steps: Sequence[Sequence[NDArray[np.int32]]],
) -> Stages:
    """Stages of the best pipeline, from the recorded choices.

    `begin` describes the first stage: its cluster, the number of later stages on that cluster and in all, and its layers."""
    at, count, behind, size = begin
    found, left = [(at, size)], layers - size
    while behind:
        while not count:
            at += 1
            count = int(taken[at][behind, left])
        size = int(steps[at][count][behind, left])
        found.append((at, size))
        behind, left, count = behind - 1, left - size, count - 1
    return tuple(found)
