"""Bounds on the pipelines of a model whose layers differ, by the layers that their ranks have: a dynamic programme.

Idea. `planner.bounds.unlike_stages` knows which layers a stage has, but no virtual stages, which take a part of every range of
layers, and no round trips. Here a rank of class c has k layers, A layers are on the ranks behind it and B on those before it.
Which layers these are is left open: the rank may have any content (layers of each kind) that vpp ranges of k layers in all may
have. Each content implies three lower bounds on the step, those of `planner.bounds.deadline_test`:

    (1) stage end     fill(B) + m cycle + tail
    (2) drain end     fill(B) + m busy - weight gradients that may follow + drain(B) + first tail
    (3) round trips   fill(B) + (n + 1) trip + other steps of the rank + drain(B) + first tail

fill, drain   the first virtual stages of the ranks before have at least (B - ranks (vpp - 1)) / vpp layers, the first ones of
              the model, each on the fastest class that may be before this rank.
trip          one microbatch from this rank's first virtual stage through all later ones, and back: its own layers, those
              behind, and those before but for at most B / vpp in first virtual stages; and the messages.

So the bound w[c, S, A, k] of a rank, S being the classes of the ranks behind it, does not depend on how the other layers are
cut. The least value of the largest w over all pipelines is a lower bound on every pipeline of so many ranks. Ranks are filled
from the last to the first, by the set of classes that have ranks, the number of ranks and that of layers.

Relaxations: a content is the cheapest that a rank might have; messages take their least seconds; gradients of virtual stages,
the collective of a tied embedding, and contention are left out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.costs.context import PlanningContext
from planner.costs.layer_kinds import Counts, Ends, Layers
from planner.costs.unlike_layers import UnlikeStages
from planner.space.shape import Shape
from sim.plan import schedules
from sim.plan.round_trips import round_trips
from sim.units import Seconds

Array: TypeAlias = NDArray[np.float64]


class _Contents(NamedTuple):
    """Of every number of layers and every content, shape (layers + 1, contents); 0 where there is none (`exists`).

    forward, backward, weight, tail: seconds of `StageCost`; one, further: bytes beside one microbatch, and of each further one;
    others: seconds of the layers on all other ranks, each on its fastest class."""

    forward: Array
    backward: Array
    weight: Array
    tail: Array
    one: Array
    further: Array
    others: Array
    exists: NDArray[np.bool_]


def contents(layers: Layers, vpp: int) -> list[list[Counts]]:
    """By number of layers, every content that vpp ranges of the model may have together, whose sizes differ by at most one.

    The layers that predict further tokens are not among them. Contents with too many layers of a kind are left out."""
    number, every = layers.number, layers.counts(0, layers.number)
    windows = [sorted({layers.counts(first, first + size) for first in range(number - size + 1)}) for size in range(number + 1)]
    found: list[list[Counts]] = []
    for total in range(number + 1):
        sizes = [total * (chunk + 1) // vpp - total * chunk // vpp for chunk in range(vpp)]
        sums = {(0,) * len(every)}
        for size in sizes:
            sums = {tuple(a + b for a, b in zip(one, window, strict=True)) for one in sums for window in windows[size]}
            sums = {one for one in sums if all(a <= b for a, b in zip(one, every, strict=True))}
        found.append(sorted(sums))
    return found


class RankProgramme:
    """The dynamic programme of one shape."""

    def __init__(
        self, context: PlanningContext, shape: Shape, classes: Sequence[UnlikeStages], kinds: Sequence[Sequence[Counts]],
        cutoff: Seconds,
    ):  # fmt: skip
        self._context, self._shape, self._classes, self._kinds = context, shape, classes, kinds
        self._layers, self._vpp = classes[0].layers, shape.vpp
        self._m = shape.microbatches(context.request.workload)
        self._total = self._layers.number + self._layers.further
        self._seconds = [option.kind_seconds() for option in classes]
        schedule = schedules.get(shape.schedule)
        self._waits, self._trip = not schedule.OVERLAPS_SENDS, "passed" if schedule.SPLITS_BACKWARD else "both"
        self._least = np.array([min(getattr(one, self._trip) for one in own) for own in zip(*self._seconds, strict=True)])
        self._hops = [[self._hop(a, b) for b in classes] for a in classes]
        self._found: dict[tuple[int, Ends], _Contents] = {}
        fastest = [min(one.both for one in option.kind_seconds(alone=True)) for option in classes]
        self._most = [int(min(cutoff / (self._m * seconds), self._total)) for seconds in fastest]
        firsts = [self._contents(c, (True, False)) for c in range(len(classes))]
        self._first_tail = min((float(one.tail[one.exists].min()) for one in firsts if one.exists.any()), default=0.0)
        behind, own = np.meshgrid(np.arange(self._total + 1), np.arange(self._total + 1), indexing="ij")
        self._behind, self._own, self._before = behind, own - behind, self._total - own

    def least(self, pp: int) -> Seconds:
        """A lower bound in seconds on all pipelines of so many ranks."""
        numbers = range(len(self._classes))
        empty = np.full((pp + 1, self._total + 1), np.inf)
        empty[0, 0] = 0.0
        found = {0: empty}
        for behind in sorted(range(1 << len(numbers)), key=int.bit_count):
            for c in (c for c in numbers if behind in found and not behind >> c & 1):
                ended = self._filled(found[behind], c, behind, pp)
                after = behind | 1 << c
                found[after] = np.minimum(found[after], ended) if after in found else ended
        return min(float(one[pp, self._total]) for one in found.values())

    def _filled(self, start: Array, c: int, behind: int, pp: int) -> Array:
        """The least bounds after 1, 2, 3 ... consecutive ranks of a class before given ones, by ranks and layers in all."""
        best, opened = np.full_like(start, np.inf), start
        for used in range(min(self._classes[c].max_stages, pp)):
            crosses = bool(behind) and not used
            best = np.minimum(best, self._step(opened, c, behind, pp, (crosses, True)))
            opened = self._step(opened, c, behind, pp, (crosses, False))
            if not np.isfinite(opened).any():
                break
        return best

    def _step(self, before: Array, c: int, behind: int, pp: int, crosses: tuple[bool, bool]) -> Array:
        after = np.full_like(before, np.inf)
        for k in np.flatnonzero(np.isfinite(before[:-1]).any(axis=1)).tolist():
            table = self._table(c, behind, (k, pp), crosses)
            after[k + 1] = np.maximum(before[k][:, None], table).min(axis=0)
        return after

    def _table(self, c: int, behind: int, place: tuple[int, int], crosses: tuple[bool, bool]) -> Array:
        """The bound of a rank of class c by the layers behind it, and those from it on; infinite where there is none.

        behind: the set of classes of the ranks behind; place: (ranks behind, ranks); crosses: whether the next and the previous
        rank are of another class."""
        s, pp = place
        rank, ends = pp - 1 - s, (s == pp - 1, s == 0)
        ahead, back, wrap = self._messages(c, behind, place, crosses)
        if math.isinf(ahead[0] + back[0]):
            return np.full(self._own.shape, np.inf)
        own, beyond, ahead_of = self._own, self._behind, self._before
        chunks = np.maximum(-(-(ahead_of - rank * (self._vpp - 1)) // self._vpp), rank)
        allowed = (own >= self._vpp) & (beyond >= s * self._vpp) & (chunks <= self._layers.number)
        allowed &= (ahead_of >= rank * self._vpp) if rank else (ahead_of == 0)
        allowed &= (beyond == 0) if not s else allowed
        held, each, m = self._contents(c, ends), np.where(allowed, own, 0), self._m
        before = [i for i in range(len(self._classes)) if i == c or not behind >> i & 1]
        fill, drain = (seconds[np.where(allowed, chunks, 0)] + sum(back) for seconds in self._passed(before))
        fill, drain = (one[..., None] if rank else np.zeros_like(one)[..., None] for one in (fill, drain))
        sends = (ahead[0] + back[0]) * self._waits
        forward, backward, weight = held.forward[each], held.backward[each], held.weight[each]
        both, owed = forward + backward, min(schedules.most_in_flight(self._shape.schedule, pp, m, self._vpp)[1], m)
        lane = 0.0 if self._waits else (self._vpp * ahead[0] if s else (self._vpp - 1) * wrap)
        work = m * np.maximum(both + sends, lane)
        bounds = fill + work + held.tail[each]
        if rank:
            last = np.maximum(m * (both + sends) - owed * weight - back[0] * self._waits, m * lane)
            bounds = np.maximum(bounds, fill + last + drain + self._first_tail)
        others = np.maximum(self._rest(held.others[each], rank), self._others(c, behind)[..., None] * bool(s))
        messages = 2 * (self._vpp * sum(ahead) + (self._vpp - 1) * (sum(back) + wrap))
        trip = both - weight + others + self._head(c, behind, s) + messages
        kinds = self._classes[c].kind_seconds(alone=pp == 1)
        rates = [min(getattr(one, name) for one in kinds) for name in ("forward", "inputs")]
        for trips, forwards, backwards, weights, *more in round_trips(self._shape.schedule, rank, pp, m, self._vpp):
            steps = forwards * forward + backwards * (backward - weight) + weights * weight
            steps = steps + ((more[0] * rates[0] + more[1] * rates[1]) * (own // self._vpp))[..., None]
            after = drain + self._first_tail if rank else held.tail[each]
            bounds = np.maximum(bounds, fill + (trips + 1) * trip + steps + after)
        fits = held.exists[each]
        for number, _ in schedules.in_flight(self._shape.schedule, rank, pp, m, self._vpp):
            inside = number / self._vpp
            if inside >= 1:
                fits &= held.one[each] + (inside - 1) * held.further[each] <= self._classes[c].room * (1 + 1e-12)
        bounds = np.where(fits & allowed[..., None], bounds, np.inf)
        found: Array = bounds.min(axis=-1)
        return found

    def _others(self, c: int, behind: int) -> Array:
        """Least seconds of the layers of a trip on other ranks, by numbers of layers: those behind and, with virtual stages,
        all but B / vpp of those before, each of the fastest kind on the fastest class that may be there."""
        classes = range(len(self._classes))
        fastest = [min(getattr(one, self._trip) for one in own) for own in self._seconds]
        after = min(fastest[i] for i in classes if i == c or behind >> i & 1)
        before = min(fastest[i] for i in classes if i == c or not behind >> i & 1)
        more = self._before - self._before // self._vpp
        found: Array = self._behind * after + np.maximum(more, 0) * before * (self._vpp > 1)
        return found

    def _rest(self, others: Array, rank: int) -> Array:
        """The same by kinds: all layers of other ranks on their fastest classes, but for those that a trip does not pass:
        without virtual stages all before this rank, else B / vpp of them."""
        if not rank:
            return others
        first = np.minimum(self._before // self._vpp, self._layers.number)
        passed = np.concatenate([[0.0], np.cumsum([float(self._least[kind]) for kind in self._layers.order])])
        found: Array = np.maximum(others - passed[first][..., None], 0.0)
        return found

    def _head(self, c: int, behind: int, s: int) -> Seconds:
        """Least seconds of the head on the last rank, where that is another one; none where a part of them may be put off."""
        if not s or self._trip == "passed":
            return 0.0
        where = [i for i in range(len(self._classes)) if (behind >> i & 1 if behind else i == c)]
        return min(self._classes[i].end_seconds()[1] for i in where)

    def _passed(self, classes: Sequence[int]) -> tuple[Array, Array]:
        """Least seconds of forwards, and of gradients of inputs, of the first layers of the model on any of the classes, by
        their number."""
        found = []
        for name in ("forward", "inputs"):
            each = [min(getattr(self._seconds[c][kind], name) for c in classes) for kind in range(len(self._layers.kinds))]
            found.append(np.concatenate([[0.0], np.cumsum([each[kind] for kind in self._layers.order])]))
        return found[0], found[1]

    def _messages(
        self, c: int, behind: int, place: tuple[int, int], crosses: tuple[bool, bool]
    ) -> tuple[tuple[Seconds, Seconds], tuple[Seconds, Seconds], Seconds]:
        """Least seconds of messages: (to the next rank, on the further borders behind), (from the previous rank, on the further
        borders before), from the last rank to the first one between virtual stages. Infinite where a neighbour cannot be."""
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
            return (math.inf, 0.0), (0.0, 0.0), 0.0
        several = len({c, *after}) > 1 or (rank > 0 and crosses[1])
        wrap = min((hops[a][b] for a, b in itertools.combinations(every, 2)), default=0.0) if several else 0.0
        return (ahead, further), (back, earlier), _finite(wrap)

    def _hop(self, a: UnlikeStages, b: UnlikeStages) -> Seconds:
        """Least seconds of a message between neighbouring ranks of two classes; infinite where there are none."""
        if a is b and a.max_stages < 2:
            return math.inf
        return self._context.messages.least(a.cluster, b.cluster, self._shape)

    def _contents(self, c: int, ends: Ends) -> _Contents:
        """Costs and bytes of all contents of the ranks of a class with these ends."""
        if (c, ends) not in self._found:
            option, size = self._classes[c], max(map(len, self._kinds))
            further = self._layers.further * ends[1]
            shape = (self._total + 1, size)
            found = _Contents._make([*np.zeros((len(_Contents._fields) - 1, *shape)), np.zeros(shape, dtype=bool)])
            for number in range(min(self._total, self._most[c]) + 1 - further):
                for x, counts in enumerate(self._kinds[number] if number < len(self._kinds) else ()):
                    cost = option.cost(counts, ends)
                    one, more, _ = option.linear_bytes(counts, ends)
                    others = [n - k for n, k in zip(self._layers.every, self._layers.of_stage(counts, ends[1]), strict=True)]
                    values = (*cost[:2], cost.weight, cost.tail(option.config), one, more, float(self._least @ others), True)
                    for array, value in zip(found, values, strict=True):
                        array[number + further, x] = value
            self._found[c, ends] = found
        return self._found[c, ends]


def _finite(seconds: Seconds) -> Seconds:
    return seconds if math.isfinite(seconds) else 0.0
