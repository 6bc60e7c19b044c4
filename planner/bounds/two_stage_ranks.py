"""Seconds of the ranks of one pipeline along a V by their numbers of layers, and the splits that may end a step in time.

Each pipeline rank of a schedule with pairs of passes (`sim.kernels.paired_passes`) holds two stages. With k layers its work of
a step is known: passes outside of pairs wait for their exchanges of tokens, a pair takes its compute or its exchanges,
whichever is longer. Its first forward follows the forwards of the ranks before, and after its last backward come those of the
ranks before. So with at most K layers on every rank in T seconds, no split of more layers ends in T; and as the others hold at
most K, each holds at least the rest, which makes the forwards before it longer. Network and links are idle, so these are lower
bounds of the evaluator's step (`sim.analytic.recurrence`), of which they are relaxations."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.analytic.candidates import PIPELINE_RANK, STAGE, Candidates, Floats
from sim.analytic.evaluator import Table
from sim.plan import schedules
from sim.plan.program import PAIR
from sim.units import Seconds

Ints = NDArray[np.int64]
LEAST = 2
"""Layers of a rank: at least one for each of its two stages."""
ROUNDS = 4
"""How often the least numbers of layers are derived again from the largest ones (a guess): more make bounds no lower."""
ROUNDING = 1e-9
"""Fraction by which sums may be above the seconds that they are held against: far more than their rounding."""
PRECISION = 1e-4
"""Relative precision of `least_seconds`, whose result is below the true value."""


def halves(layers: Ints) -> tuple[Ints, Ints]:
    """Layers of the first and of the second stage of ranks (`planner.placement.ranks.virtual`)."""
    return layers // 2, layers - layers // 2


class TwoStageRanks:
    """Work of the ranks of a pipeline by number of layers, shape (ranks, layers + 1), in seconds; infinite where a rank, or
    another one, has fewer than `LEAST` layers.

    total: the model's layers; table: a class for each pipeline rank; microbatches: of the replica."""

    def __init__(self, table: Table, ranks: int, total: int, microbatches: int):
        self.ranks, self.total = ranks, total
        sizes = np.arange(1, total // 2 + 1)
        probes = table.candidates(np.tile(np.arange(ranks), (len(sizes), 1)), np.tile(sizes[:, None], (1, 2 * ranks)))
        self._stage: dict[str, Floats] = dict(zip(STAGE, probes.stages, strict=True))
        self._ends = self._tails(probes)
        name = probes.schedule
        programs = [schedules.actions(name, rank, ranks, microbatches, 2) for rank in range(ranks)]
        self.work = np.full((ranks, total + 1), math.inf)
        self._owed = np.zeros((ranks, total + 1))
        self._ahead, self._back = np.zeros((ranks, total + 1)), np.zeros((ranks, total + 1))
        layers = np.arange(LEAST, total - LEAST + 1)
        for rank, program in enumerate(programs):
            counts = Counter((kind, stage, operation == PAIR) for kind, stage, _, _, _, _, _, operation, *_ in program)
            own = (rank, 2 * ranks - 1 - rank)
            self.work[rank, layers] = self._work(own, counts, layers)
            behind = schedules.weights_behind(name, rank, ranks, microbatches, 2)
            both = (self._of("weight", stage, size) for stage, size in zip(own, halves(layers), strict=True))
            self._owed[rank, layers] = behind * np.maximum(*both)
            first = halves(layers)[0]
            wire = self._stage["ahead"][rank, 0], self._stage["back"][rank + 1, 0] if rank + 1 < ranks else 0.0
            for kept, one, message in zip((self._ahead, self._back), ("forward", "inputs"), wire, strict=True):
                kept[rank, layers] = self._of(one, rank, first) + self._of(f"{one}_tokens", rank, first) + message

    def _of(self, name: str, stage: int, sizes: Ints) -> Floats:
        found: Floats = self._stage[name][stage, sizes - 1]
        return found

    def _work(self, own: tuple[int, int], counts: Counter[tuple[str, int, bool]], layers: Ints) -> Floats:
        """Seconds of all passes of a step, and of the exchanges that they wait for."""
        sizes, found = dict(zip(own, halves(layers), strict=True)), np.zeros(len(layers))
        for stage, other in (own, own[::-1]):
            pairs = counts["F", stage, True]
            alone = [self._of(one, stage, sizes[stage]) for one in ("forward", "forward_tokens", "inputs", "inputs_tokens")]
            behind = [self._of(one, other, sizes[other]) for one in ("inputs", "weight", "inputs_tokens")]
            found += pairs * np.maximum(alone[0] + behind[0] + behind[1], alone[1] + behind[2])
            found += counts["F", stage, False] * (alone[0] + alone[1])
            unpaired = counts["B", stage, False] - counts["F", other, True]
            found += unpaired * (alone[2] + alone[3] + self._of("weight", stage, sizes[stage]))
        return found

    def _tails(self, probes: Candidates) -> Floats:
        """Seconds after the last pass of a rank, shape (ranks, layers + 1): those of the next even number of layers below."""
        rows = dict(zip(PIPELINE_RANK, probes.pp_ranks, strict=True))
        sizes = np.clip(np.arange(self.total + 1) // 2, 1, self.total // 2) - 1
        found: Floats = (rows["reduced"] + rows["updated"])[:, sizes]
        return found

    def most_layers(self, seconds: Seconds, allowed: NDArray[np.bool_]) -> tuple[Ints, Ints] | None:
        """The least and the largest number of layers of each rank in splits that may end a step within `seconds`; None where no
        split does. allowed: which numbers of layers a rank has room for, shape (ranks, layers + 1)."""
        least = np.full(self.ranks, LEAST)
        for _ in range(ROUNDS):
            index = np.arange(self.ranks)
            ahead, back = self._ahead[index, least], self._back[index, least]
            arrives, leaves = (np.concatenate([[0.0], np.cumsum(one)[:-1]]) for one in (ahead, back))
            behind = leaves[1:] + self._ends[0, least[0]]
            ends = self.work + self._ends
            ends[1:] = np.maximum(ends[1:], self.work[1:] - self._owed[1:] + behind[:, None])
            ends += arrives[:, None]
            able = allowed & (ends <= seconds * (1 + ROUNDING))
            able[:, :LEAST] = False
            if not able.any(axis=1).all():
                return None
            most = self.total - np.argmax(able[:, ::-1], axis=1)
            if most.sum() < self.total:
                return None
            new = np.maximum(LEAST, self.total - (most.sum() - most))
            if (new <= least).all():
                break
            least = np.maximum(new, least)
        return least, most

    def least_seconds(self, above: Seconds, below: Seconds, allowed: NDArray[np.bool_]) -> Seconds:
        """A lower bound on the step of every split, at most `below`; `above` is one."""
        if self.most_layers(below, allowed) is None:
            return below
        while below - above > PRECISION * below:
            middle = (above + below) / 2
            above, below = (above, middle) if self.most_layers(middle, allowed) else (middle, below)
        return above

    def splits(self, seconds: Seconds, allowed: NDArray[np.bool_], most: int) -> Ints | None:
        """All splits that may end a step within `seconds`, shape (splits, ranks); None where there are more than `most`."""
        ends = self.most_layers(seconds, allowed)
        if ends is None:
            return np.zeros((0, self.ranks), np.int64)
        sizes = [[k for k in range(a, b + 1) if allowed[rank, k]] for rank, (a, b) in enumerate(zip(*ends, strict=True))]
        if _number(sizes, self.total) > most:
            return None
        return np.array(list(_splits(sizes, self.total)), np.int64).reshape(-1, self.ranks)


def _number(sizes: Sequence[Sequence[int]], total: int) -> float:
    """Number of ways to take one of each of `sizes` with a sum of `total`."""
    ways = np.zeros(total + 1)
    ways[0] = 1.0
    for one in sizes:
        ways = np.sum([np.concatenate([np.zeros(k), ways[: total + 1 - k]]) for k in one if k <= total], axis=0)
    return float(ways[total])


def _splits(sizes: Sequence[Sequence[int]], total: int) -> Iterator[tuple[int, ...]]:
    """These ways, as far as the sizes left can fill the rest."""
    if len(sizes) == 1:
        if total in sizes[0]:
            yield (total,)
        return
    rest = sizes[1:]
    low, high = sum(map(min, rest)), sum(map(max, rest))
    for k in sizes[0]:
        if low <= total - k <= high:
            yield from ((k, *others) for others in _splits(rest, total - k))


def sequences(rooms: Sequence[tuple[str, int]], ranks: int) -> Iterator[tuple[str, ...]]:
    """The clusters of the ranks of a pipeline, given (cluster, most ranks): each cluster's ranks side by side, in any order of
    some clusters."""
    for number in range(1, min(len(rooms), ranks) + 1):
        for chosen in itertools.permutations(rooms, number):
            for cuts in itertools.combinations(range(1, ranks), number - 1):
                counts = [b - a for a, b in itertools.pairwise((0, *cuts, ranks))]
                if all(count <= room for count, (_, room) in zip(counts, chosen, strict=True)):
                    yield tuple(name for count, (name, _) in zip(counts, chosen, strict=True) for _ in range(count))
