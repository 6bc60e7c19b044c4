"""Bounds on the pipelines of a model whose layers differ, by the layers that one of their ranks has.

Idea. `planner.bounds.unlike_stages` knows which layers a stage has, but no virtual stages, which take a part of every range of
layers, and no round trips. Here a rank of class c has k layers, A layers are on the ranks behind it and B on those before it.
With virtual stages it is left open which layers these are: the rank may have any content (layers of each kind) that vpp
ranges of k layers in all may have (`planner.bounds.rank_states`). Each content implies four lower bounds on the step, those
of `planner.bounds.deadline_test`:

    (1) stage end     fill(B) + m cycle + tail
    (2) drain end     fill(B) + m busy - weight gradients that may follow + drain(B) + first tail
    (3) round trips   fill(B) + (n + 1) trip + other steps of the rank + drain(B) + first tail
    (4) first return  fill(B) + trip + later steps of the rank + tail

fill, drain   the first virtual stages of the ranks before have at least (B - ranks (vpp - 1)) / vpp layers, the first ones of
              the model, each on the fastest class that may be before this rank.
tail          begins before the last message back, where the schedule waits for its sends: reductions run beside it.
trip          one microbatch from this rank's first virtual stage through all later ones, and back: its own layers, those
              behind, and those before but for at most B / vpp in first virtual stages; and the messages.

So the bound w of a rank does not depend on how the other layers are cut, and the least value of the largest w over all
pipelines (`planner.bounds.rank_programme`) is a lower bound on every pipeline of so many ranks.

Relaxations: messages take their least seconds; gradients of virtual stages,
the collective of a tied embedding, and contention are left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.bounds.rank_states import Numbers
from planner.costs.layer_kinds import Counts, Ends
from planner.costs.unlike_layers import UnlikeStages
from planner.request import Request
from planner.space.shape import Shape
from sim.plan import schedules
from sim.plan.round_trips import first_return, round_trips
from sim.units import Seconds

Array: TypeAlias = NDArray[np.float64]


class Contents(NamedTuple):
    """Of every number of layers and every content, shape (layers + 1, contents); 0 where there is none (`exists`).

    forward, backward, weight, tail: seconds of `StageCost`; fixed, each, waiting, head: bytes (`RankBytes`);
    others: seconds of the layers on all other ranks, each on its fastest class."""

    forward: Array
    backward: Array
    weight: Array
    tail: Array
    fixed: Array
    each: Array
    waiting: Array
    head: Array
    others: Array
    exists: NDArray[np.bool_]


class Ranks(NamedTuple):
    """Layers on the ranks behind each of some ranks, its own layers, and the index of its content among those of so many."""

    behind: Numbers
    own: Numbers
    content: Numbers


class Messages(NamedTuple):
    """Least seconds of messages of a rank and of others: to the next rank, on the further borders behind, from the previous
    rank, on the further borders before, and from the last rank to the first one between virtual stages.

    Infinite where a neighbour cannot be."""

    ahead: Seconds
    further: Seconds
    back: Seconds
    earlier: Seconds
    wrap: Seconds


class Place(NamedTuple):
    """A rank of a pipeline: its class, the numbers of ranks behind it and in all, the classes that ranks behind it, before it
    and the last rank may have, and its messages. Where no rank is behind or before, its own class stands for theirs."""

    c: int
    behind: int
    pp: int
    after: tuple[int, ...]
    before: tuple[int, ...]
    last: tuple[int, ...]
    messages: Messages


class RankBounds:
    """The bounds of the ranks of one shape."""

    def __init__(
        self, request: Request, shape: Shape, classes: Sequence[UnlikeStages], kinds: Sequence[Sequence[Counts]],
        cutoff: Seconds,
    ):  # fmt: skip
        self._shape, self._classes, self._kinds = shape, classes, kinds
        self._layers, self._vpp = classes[0].layers, shape.vpp
        self._m = shape.microbatches(request.workload)
        self._total = self._layers.number + self._layers.further
        self._seconds = [option.kind_seconds() for option in classes]
        schedule = schedules.get(shape.schedule)
        self._waits, self._trip = not schedule.OVERLAPS_SENDS, "passed" if schedule.SPLITS_BACKWARD else "both"
        self._least = np.array([min(getattr(one, self._trip) for one in own) for own in zip(*self._seconds, strict=True)])
        self._found: dict[tuple[int, Ends], Contents] = {}
        self._summed: dict[tuple[str, tuple[int, ...], bool], Array] = {}
        fastest = [min(one.both for one in option.kind_seconds(alone=True)) for option in classes]
        self._most = [int(min(cutoff / (self._m * seconds), self._total)) for seconds in fastest]
        firsts = [self.contents(c, (True, False)) for c in range(len(classes))]
        self._first_tail = min((float(one.tail[one.exists].min()) for one in firsts if one.exists.any()), default=0.0)
        order = self._layers.order
        self._backwards = (*[self._layers.last] * self._layers.further, *reversed(order))  # the kinds from the last layer on

    def table(self, place: Place, ranks: Ranks) -> Array:
        """The bound of each of some ranks at a place; infinite where there is none."""
        (c, s, pp), (ahead, further, back, earlier, wrap) = place[:3], place.messages
        rank, ends = pp - 1 - s, (s == pp - 1, s == 0)
        if math.isinf(ahead + back):
            return np.full(ranks.own.shape, np.inf)
        own, x = ranks.own, ranks.content
        ahead_of = self._total - own - ranks.behind
        chunks = np.maximum(-(-(ahead_of - rank * (self._vpp - 1)) // self._vpp), rank)
        allowed = (own >= self._vpp) & (ranks.behind >= s * self._vpp) & (chunks <= self._layers.number)
        allowed &= (ahead_of >= rank * self._vpp) if rank else (ahead_of == 0)
        held, m = self.contents(c, ends), self._m
        fill = drain = np.zeros(len(own))
        if rank:
            first = np.where(allowed, chunks, 0)
            sums = (self._sums(name, place.before, self._layers.order) for name in ("forward", "inputs"))
            fill, drain = (one[first] + (back + earlier) for one in sums)
        sends = (ahead + back) * self._waits
        forward, backward, weight, tail = (one[own, x] for one in (held.forward, held.backward, held.weight, held.tail))
        both, owed = forward + backward, min(schedules.most_in_flight(self._shape.schedule, pp, m, self._vpp)[1], m)
        lane = 0.0 if self._waits else (self._vpp * ahead if s else (self._vpp - 1) * wrap)
        work = m * np.maximum(both + sends, lane)
        bounds = fill + work - back * self._waits + tail
        if rank:
            last = np.maximum(m * (both + sends) - owed * weight - back * self._waits, m * lane)
            bounds = np.maximum(bounds, fill + last + drain + self._first_tail)
        others = self._rest(held.others[own, x], rank, ahead_of)
        if s:
            others = np.maximum(others, self._others(place, ranks.behind, ahead_of))
        messages = 2 * (self._vpp * (ahead + further) + (self._vpp - 1) * (back + earlier + wrap))
        trip = both - weight + others + self._head(place) + messages
        kinds = self._classes[c].kind_seconds(alone=pp == 1)
        rates = [min(getattr(one, name) for one in kinds) for name in ("forward", "inputs")]
        chunk, after = own // self._vpp, drain + self._first_tail if rank else tail
        of_one = forward, backward - weight, weight, chunk * rates[0], chunk * rates[1]
        program = self._shape.schedule, rank, pp, m, self._vpp
        for trips, *steps in round_trips(*program):
            bounds = np.maximum(bounds, fill + (trips + 1) * trip + _sum_of(steps, of_one) + after)
        bounds = np.maximum(bounds, fill + trip + _sum_of(first_return(*program)[1:], of_one) + tail)
        fixed, each, waiting, head = (one[own, x] for one in (held.fixed, held.each, held.waiting, held.head))
        before = self._classes[c].ahead_of_head(pp)
        for number, waits in schedules.in_flight(self._shape.schedule, rank, pp, m, self._vpp):
            peak = fixed + number * each + waits * waiting + max(1.0, number - before) * head
            allowed &= peak <= self._classes[c].room * (1 + 1e-12)
        return np.where(allowed, bounds, np.inf)

    def _others(self, place: Place, after: Numbers, ahead_of: Numbers) -> Array:
        """Least seconds of the layers of a trip on other ranks, by the layers behind and before, each on the fastest class that
        may be there: those behind, which are the last of the model; with virtual stages those behind and all but B / vpp of
        those before, all of the fastest kind."""
        if self._vpp == 1:
            last: Array = self._sums(self._trip, place.after, self._backwards)[after]
            return last
        sides = place.after, place.before
        later, before = (min(getattr(one, self._trip) for c in side for one in self._seconds[c]) for side in sides)
        found: Array = after * later + (ahead_of - ahead_of // self._vpp) * before
        return found

    def _rest(self, others: Array, rank: int, ahead_of: Numbers) -> Array:
        """The same by kinds: all layers of other ranks on their fastest classes, but for those that a trip does not pass:
        without virtual stages all before this rank, else B / vpp of them."""
        if not rank:
            return others
        passed = self._sums(self._trip, tuple(range(len(self._classes))), self._layers.order)
        found: Array = np.maximum(others - passed[np.minimum(ahead_of // self._vpp, self._layers.number)], 0.0)
        return found

    def _head(self, place: Place) -> Seconds:
        """Least seconds of the head on the last rank, where that is another one; none where a part of them may be put off."""
        if not place.behind or self._trip == "passed":
            return 0.0
        return min(self._classes[c].end_seconds()[1] for c in place.last)

    def _sums(self, name: str, classes: tuple[int, ...], kinds: Sequence[int]) -> Array:
        """Least seconds (a field of `KindSeconds`) of the first of some layers, on any of some classes, by number."""
        key = name, classes, kinds is self._backwards
        if key not in self._summed:
            each = [min(getattr(self._seconds[c][kind], name) for c in classes) for kind in range(len(self._layers.kinds))]
            self._summed[key] = np.concatenate([[0.0], np.cumsum([each[kind] for kind in kinds])])
        return self._summed[key]

    def contents(self, c: int, ends: Ends) -> Contents:
        """Costs and bytes of all contents of the ranks of a class with these ends."""
        if (c, ends) not in self._found:
            option, size = self._classes[c], max(map(len, self._kinds))
            further = self._layers.further * ends[1]
            shape = (self._total + 1, size)
            found = Contents._make([*np.zeros((len(Contents._fields) - 1, *shape)), np.zeros(shape, dtype=bool)])
            for number in range(min(self._total, self._most[c]) + 1 - further):
                for x, counts in enumerate(self._kinds[number] if number < len(self._kinds) else ()):
                    cost = option.cost(counts, ends)
                    others = [n - k for n, k in zip(self._layers.every, self._layers.of_stage(counts, ends[1]), strict=True)]
                    values = (
                        *cost[:2],
                        cost.weight,
                        cost.tail(option.config),
                        *option.bytes(counts, ends),
                        float(self._least @ others),
                        True,
                    )
                    for array, value in zip(found, values, strict=True):
                        array[number + further, x] = value
            self._found[c, ends] = found
        return self._found[c, ends]


def _sum_of(numbers: Sequence[int], each: Sequence[Array]) -> Array:
    """Seconds of so many steps of each kind."""
    found: Array = np.sum([number * seconds for number, seconds in zip(numbers, each, strict=True)], axis=0)
    return found
