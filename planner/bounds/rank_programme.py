"""The least of the largest bounds of ranks (`planner.bounds.unlike_ranks`) over all pipelines, by dynamic programmes.

Ranks are filled from the last to the first. One programme is over all orders of the classes, by the set of classes that have
ranks, the number of ranks and what is on them (`planner.bounds.rank_states`). In the other one the class of each rank is given,
and with it its position on the nodes of its cluster and all messages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from planner.bounds.rank_states import States
from planner.bounds.unlike_ranks import Array, Messages, Place, RankBounds, Ranks
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeStages
from planner.space.shape import Shape
from sim.units import Seconds

Split: TypeAlias = tuple[int, ...]
"""Layers of each rank of a pipeline, those that predict further tokens included."""
HALVED = 8
"""How often the seconds are halved within which pipelines are listed (a guess). More: hardly more pipelines."""


class RankProgramme:
    """The programmes of one shape. Bounds from the cutoff on are not told apart."""

    def __init__(
        self, context: PlanningContext, shape: Shape, classes: Sequence[UnlikeStages], states: States, cutoff: Seconds
    ):  # fmt: skip
        self._context, self._shape, self._classes = context, shape, classes
        self._states, self._cutoff = states, cutoff
        self._ranks = RankBounds(context.request, shape, classes, states.kinds, cutoff)
        self._hops = [[self._hop(a, b) for b in classes] for a in classes]

    def least(self, pp: int) -> Seconds:
        """A lower bound in seconds on all pipelines of so many ranks; infinite, too, where it is the cutoff or more."""
        numbers = range(len(self._classes))
        empty = np.full((pp + 1, self._states.last + 1), np.inf)
        empty[0, 0] = 0.0
        found = {0: empty}
        for behind in sorted(range(1 << len(numbers)), key=int.bit_count):
            for c in (c for c in numbers if behind in found and not behind >> c & 1):
                ended = self._filled(found[behind], c, behind, pp)
                after = behind | 1 << c
                found[after] = np.minimum(found[after], ended) if after in found else ended
        return min(float(one[pp, -1]) for one in found.values())

    def least_of(self, ranks: Sequence[int]) -> Seconds:
        """The same for the pipelines of which rank i is on the class ranks[i]. Raises NoRoute."""
        before = np.full(self._states.last + 1, np.inf)
        before[0] = 0.0
        for place in self._places(ranks):
            before = self._step(before, place)
        return float(before[-1])

    def splits(self, ranks: Sequence[int], low: Seconds, most: int) -> tuple[Seconds, list[Split]]:
        """Layers of the ranks of all pipelines of which rank i is on the class ranks[i] and no rank implies so many seconds,
        and these seconds: the cutoff, or less where there are more than `most`. low: a lower bound. Raises NoRoute."""
        tables = [self._by_layers(place) for place in self._places(ranks)]
        high = self._cutoff
        if _ways(tables, high)[0] > most:
            for _ in range(HALVED):
                middle = (low + high) / 2
                low, high = (middle, high) if _ways(tables, middle)[0] <= most else (low, middle)
            high = low
        number, ways = _ways(tables, high)
        return high, list(_listed(tables, ways, high)) if number <= most else []

    def _by_layers(self, place: Place) -> Array:
        """The least bound of a rank by the layers behind it and its own."""
        moves = self._states.other if place.behind else self._states.last_rank
        exists = self._ranks.contents(place.c, (place.behind == place.pp - 1, not place.behind)).exists
        cells = np.flatnonzero(exists[moves.own, moves.content])
        ranks = Ranks(moves.behind[cells], moves.own[cells], moves.content[cells])
        found = np.full((exists.shape[0], exists.shape[0]), np.inf)
        np.minimum.at(found, (ranks.behind, ranks.own), self._ranks.table(place, ranks))
        return found

    def _places(self, ranks: Sequence[int]) -> Iterator[Place]:
        """The ranks of a pipeline, from the last one to the first."""
        pp, hops = len(ranks), self._hops_of(ranks)
        for s, c in enumerate(reversed(ranks)):
            rank = pp - 1 - s
            after, ahead = tuple(sorted(set(ranks[rank + 1 :]))), tuple(sorted(set(ranks[:rank])))
            messages = Messages(
                hops[rank] if s else 0.0, sum(hops[rank + 1 : pp - 1]), hops[rank - 1] if rank else 0.0,
                sum(hops[: max(rank - 1, 0)]), hops[-1],
            )  # fmt: skip
            yield Place(c, s, pp, after or (c,), ahead or (c,), (ranks[-1],), messages)

    def _hops_of(self, ranks: Sequence[int]) -> list[Seconds]:
        """Seconds of the message from each rank to the next one, the shorter of both ways; last, from the last to the first."""
        clusters = [self._classes[c].cluster for c in ranks]
        nic, messages = self._context.fleets.nic_of(tuple(dict.fromkeys(clusters))), self._context.messages
        together = messages.together(clusters, self._shape)
        ends = [(cluster, ranks[:rank].count(c)) for rank, (c, cluster) in enumerate(zip(ranks, clusters, strict=True))]
        found = []
        for here, there in itertools.pairwise([*ends, ends[0]]):
            ways = ((*here, *there), (*there, *here)) if len(ranks) > 1 else ()
            found.append(min((messages.hop(*way, self._shape, nic, together) for way in ways), default=0.0))
        return found

    def _filled(self, start: Array, c: int, behind: int, pp: int) -> Array:
        """The least bounds after 1, 2, 3 ... consecutive ranks of a class before given ones, by ranks and state."""
        best, opened = np.full_like(start, np.inf), start
        for used in range(min(self._classes[c].max_stages, pp)):
            crosses = bool(behind) and not used
            best = np.minimum(best, self._steps(opened, c, behind, pp, (crosses, True)))
            opened = self._steps(opened, c, behind, pp, (crosses, False))
            if not np.isfinite(opened).any():
                break
        return best

    def _steps(self, before: Array, c: int, behind: int, pp: int, crosses: tuple[bool, bool]) -> Array:
        """The least bounds with one rank more, by ranks and state."""
        found, every = np.full_like(before, np.inf), range(len(self._classes))
        after = tuple(i for i in every if i == c or behind >> i & 1)
        ahead = tuple(i for i in every if i == c or not behind >> i & 1)
        last = tuple(i for i in every if behind >> i & 1) or (c,)
        for k in np.flatnonzero(np.isfinite(before[:-1]).any(axis=1)).tolist():
            messages = self._messages(c, behind, (k, pp), crosses)
            found[k + 1] = self._step(before[k], Place(c, k, pp, after, ahead, last, messages))
        return found

    def _step(self, before: Array, place: Place) -> Array:
        """The least bounds with a rank more, by state; infinite from the cutoff on."""
        moves, after = self._states.other if place.behind else self._states.last_rank, np.full_like(before, np.inf)
        exists = self._ranks.contents(place.c, (place.behind == place.pp - 1, not place.behind)).exists
        some = np.flatnonzero(np.isfinite(before)[moves.before] & exists[moves.own, moves.content][moves.cell])
        cells, each = np.unique(moves.cell[some], return_inverse=True)
        table = self._ranks.table(place, Ranks(moves.behind[cells], moves.own[cells], moves.content[cells]))
        np.minimum.at(after, moves.after[some], np.maximum(before[moves.before[some]], table[each]))
        after[after >= self._cutoff] = np.inf
        return after

    def _messages(self, c: int, behind: int, place: tuple[int, int], crosses: tuple[bool, bool]) -> Messages:
        """Least messages of a rank of class c; behind: the set of classes of the ranks behind; place: (ranks behind, ranks);
        crosses: whether the next and the previous rank are of another class."""
        s, pp = place
        rank, every = pp - 1 - s, range(len(self._classes))
        after = [i for i in every if behind >> i & 1]
        before = [i for i in every if i != c and not behind >> i & 1]
        inside, hops = self._hops[c][c], self._hops
        ahead = back = further = earlier = 0.0
        if s:
            ahead = min((hops[c][i] for i in after), default=math.inf) if crosses[0] else inside
            borders = max(len(after) - crosses[0], 0)
            pairs = [hops[a][b] for a, b in itertools.combinations([c, *after], 2)]
            within = min(hops[i][i] for i in (c, *after)) if s - 1 > borders else 0.0
            further = borders * min(pairs, default=0.0) + max(s - 1 - borders, 0) * _finite(within)
        if rank:
            back = min((hops[i][c] for i in before), default=math.inf) if crosses[1] else inside
            pairs = [hops[a][b] for a in (c, *before) for b in (c, *before)]
            earlier = (rank - 1) * _finite(min(pairs))
        if not rank and crosses[1] is False:
            return Messages(math.inf, 0.0, 0.0, 0.0, 0.0)
        several = len({c, *after}) > 1 or (rank > 0 and crosses[1])
        wrap = min((hops[a][b] for a, b in itertools.combinations(every, 2)), default=0.0) if several else 0.0
        return Messages(ahead, further, back, earlier, _finite(wrap))

    def _hop(self, a: UnlikeStages, b: UnlikeStages) -> Seconds:
        """Least seconds of a message between neighbouring ranks of two classes; infinite where there are none."""
        if a is b and a.max_stages < 2:
            return math.inf
        return self._context.messages.least(a.cluster, b.cluster, self._shape)


def _finite(seconds: Seconds) -> Seconds:
    return seconds if math.isfinite(seconds) else 0.0


def _ways(tables: Sequence[Array], seconds: Seconds) -> tuple[float, list[Array]]:
    """The number of splits of which no rank implies so many seconds, and for each rank, from the last to the first, in how many
    ways the ranks from it on can be given the layers that are not behind it."""
    total = len(tables[0])
    ways = np.zeros(total)
    ways[-1] = 1.0
    found = [ways]
    for table in reversed(tables):
        allowed, before = table < seconds, np.zeros(total)
        for own in np.flatnonzero(allowed.any(axis=0)).tolist():
            before[: total - own] += allowed[: total - own, own] * ways[own:]
        ways = before
        found.append(ways)
    return float(ways[0]), found[::-1]


def _listed(tables: Sequence[Array], ways: Sequence[Array], seconds: Seconds, behind: int = 0) -> Iterator[Split]:
    """The splits that `_ways` counts."""
    if not tables:
        yield ()
        return
    for own in np.flatnonzero(tables[0][behind] < seconds).tolist():
        if behind + own < len(ways[1]) and ways[1][behind + own]:
            for others in _listed(tables[1:], ways[1:], seconds, behind + own):
                yield (*others, own)
