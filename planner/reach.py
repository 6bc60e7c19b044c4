"""How far pipelines get in a given time: whether places on these classes, in this order, can hold all layers.

Places are filled from the last one to the first. Before a place of k layers lie the others that are not placed yet, r - k of r;
its first microbatch comes through them, and its last one goes back through them. So, of T seconds, it needs

    forwards before + begin + m slot(k) + tail(k)                                    <= T
    forwards before + m slot(k) - w weight(k) + inputs before + tail of the first    <= T

with w the weight gradients that its schedule leaves behind the last backward. The more layers lie before, the fewer it holds;
so the most that each can hold, one after the other, leave the fewest for those before, and where layers are left when the
places have come to an end, no pipeline of these places is done in T. What lies before is reckoned as cheaply as classes there
allow, and memory is that of a place with no more behind it than there must be: both err to the safe side.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import combinations, islice, pairwise, permutations, product

from planner.classes import ClassOption
from planner.leaves import oversubscribed
from planner.stages import EVERY_ORDER, orders
from planner.workshop import Stages, Workshop
from sim import schedules
from sim.errors import PlanError

PRECISE = 1e-3
"""A bound is sought until it is known to this share."""
CLASSES = 4
"""Of so many classes every order of every set is looked at."""
COUNTS = 200
"""Where the schedule asks for so many places, ways to spread them over the classes that are looked at one by one."""


def reach_bound(orders: Sequence[Reach], least: float, cutoff: float) -> float:
    """A lower bound on the step of all these pipelines, not below `least`: the cutoff, if none of them takes less."""
    low, high = least, cutoff
    if low >= high or not any(order.within(high) for order in orders):
        return max(low, high)
    while math.isfinite(high) and high > low * (1 + PRECISE):
        middle = math.sqrt(low * high) if low > 0 else high / 2
        if any(order.within(middle) for order in orders):
            high = middle
        else:
            low = middle
    return low


def reaches(workshop: Workshop, classes: Sequence[ClassOption], seconds: float) -> list[Reach]:
    """Pipelines of two or more places over sets of classes in orders, those that are not ruled out to take so many seconds.

    Every set in every order where they are few, else `orders` of all in which some classes may have no place."""
    if len(classes) > EVERY_ORDER:
        loose = (Reach(workshop, order, True) for order in orders(workshop, list(classes)))
        found = [reach for reach in loose if reach.within(seconds)]
        if not found or len(classes) > CLASSES:
            return found
    sets = (some for size in range(1, len(classes) + 1) for some in combinations(classes, size))
    every = (Reach(workshop, order) for some in sets for order in permutations(some))
    return [reach for reach in every if reach.within(seconds)]


class Reach:
    """Pipelines over classes in an order, each of which has a place; if `loose`, some of them may have none."""

    def __init__(self, workshop: Workshop, order: tuple[ClassOption, ...], loose: bool = False):
        self.loose = loose
        self.order, self.shape, self.m = order, order[0].shape, order[0].microbatches
        self.layers, self.config, self.pinned = order[0].workload.model.layers, order[0].config, workshop.question.wishes.pp
        schedule = schedules.get(self.shape.schedule)
        self.waits, self.chunked = not schedule.OVERLAPS_SENDS, schedule.CHUNKED
        crosses = len(order) > 1 and not loose
        self.messages = [option.crossing if crosses else option.message for option in order]
        self.borders = [0.0 if loose else workshop.message(a.cluster, b.cluster, self.shape) for a, b in pairwise(order)]
        self.tied = 0.0 if loose else workshop.tied(order[0].cluster, order[-1].cluster, self.shape)
        self._capacities = [min(option.capacity, self.pinned or option.capacity) for option in order]
        self.splits = schedule.SPLITS_BACKWARD
        self._places: dict[tuple[int, str, int], tuple[float, float, float, float]] = {}
        self.workshop, self.nic = workshop, ""
        with suppress(PlanError):
            self.nic = workshop.nic_of(tuple(option.cluster for option in order[: 1 if loose else None]))
        self.exact = not loose and not any(oversubscribed(option.cluster) for option in order)
        """Whether the evaluator's seconds are a bound: stages on an oversubscribed fabric may lie better than as listed."""
        self.possible = bool(self.nic) and all(map(math.isfinite, (*self.messages, *self.borders, self.tied)))

    def within(self, seconds: float) -> bool:
        """Whether it cannot be ruled out that some pipeline takes no more than so many seconds."""
        slow = any(option.layer_seconds * self.m > seconds for option in self.order)
        if not self.possible or (slow and not self.loose):
            return False
        return self._fill(self._capacities, seconds) and self._fill(self._rooms(seconds), seconds)

    def _fill(self, rooms: list[int], seconds: float) -> bool:
        """Whether all layers find a place in time, with so many places of each class."""
        if not self._could(rooms, seconds) or not (self.loose or all(rooms)):
            return False
        if self.loose or not self.chunked:
            return _Filling(self, seconds, rooms, None).done()
        return any(
            self._could(counts, seconds) and _Filling(self, seconds, counts, pp).done() and self._carried(counts, pp, seconds)
            for pp, counts in self._lengths(rooms, seconds)
        )

    def pipelines(self, seconds: float, most: int) -> list[tuple[tuple[int, int], ...]] | None:
        """All pipelines that cannot be ruled out to take no more than so many seconds: (class, layers) of every place.

        None where there are more than `most`.
        """
        found: list[tuple[tuple[int, int], ...]] = []
        rooms = self._rooms(seconds) if self.possible else [0]
        if self.loose or math.prod(rooms) > most:
            return None
        for counts in product(*(range(1, room + 1) for room in rooms)):
            pp = sum(counts)
            able = (
                self.pinned in (None, pp) and 2 <= pp <= self.layers // self.shape.vpp and self.shape.places(self.m, pp) == pp
            )
            if able and self._could(counts, seconds) and self._carried(list(counts), pp, seconds):
                found += _Filling(self, seconds, list(counts), pp).every(most + 1 - len(found))
            if len(found) > most:
                return None
        return found

    def _carried(self, counts: list[int], pp: int, seconds: float) -> bool:
        """Whether the fullest link carries all messages of a pipeline with so many places of each class in time."""
        if self.m * self._heaviest <= seconds or sum(counts) != pp:
            return True
        runs = tuple((option.cluster, 0, count) for option, count in zip(self.order, counts, strict=True))
        return self.m * self.workshop.load(runs, self.shape, self.nic, self.workshop.open, True) <= seconds

    @functools.cached_property
    def _heaviest(self) -> float:
        """More than what a microbatch's messages take on any link: those of a node's places and their neighbours in a row."""
        hop, shape = functools.partial(self.workshop.hop, shape=self.shape, nic=self.nic), self.shape
        ways = [(option.cluster, way, len(option.costs)) for option in self.order for way in range(len(option.costs))]
        inside = max(hop(cluster, way, cluster, way + 1) for cluster, way, _ in ways)
        between = max((hop(a, i, b, j) for a, i, _ in ways for b, j, _ in ways if a is not b), default=0.0)
        return 2 * shape.vpp * (max(many for *_, many in ways) + 1) * max(inside, between)

    def _rooms(self, seconds: float) -> list[int]:
        """Most places of each class whose messages the fullest link carries in time; none where no number does."""
        found = []
        for i, (option, room) in enumerate(zip(self.order, self._capacities, strict=True)):
            most = min(room, 4 * len(option.costs) + 2)  # of more, the messages are the same
            if (self.loose or self.m * self._heaviest > seconds) and self.m * self._load(i, most) > seconds:
                least = 1 if len(self.order) > 1 else 2  # a place alone needs another class
                room = next((n for n in range(most - 1, least - 1, -1) if self.m * self._load(i, n) <= seconds), 0)
            found.append(room)
        return found

    def _load(self, i: int, places: int) -> float:
        """Least seconds of a microbatch's messages on a link of the first so many places of a class and of their neighbours."""
        mine, open_fleet = (self.order[i].cluster, 0, places), self.workshop.open
        if self.loose:
            return self.workshop.load((mine,), self.shape, self.workshop.nic_of(mine[:1]), open_fleet)

        def beside(j: int) -> list[tuple[Stages, ...]]:
            """The place of a neighbouring class, however it lies on its node."""
            if not 0 <= j < len(self.order):
                return [()]
            return [((self.order[j].cluster, way, 1),) for way in range(len(self.order[j].costs))]

        runs = ((*before, mine, *behind) for before, behind in product(beside(i - 1), beside(i + 1)))
        return min(self.workshop.load(run, self.shape, self.nic, open_fleet) for run in runs)

    def _lengths(self, rooms: list[int], seconds: float) -> Iterator[tuple[int, list[int]]]:
        """Lengths that the schedule can play, with the places of each class."""
        if self.loose or not all(rooms):
            return
        least = math.ceil(self.layers / max(self.caps(seconds)))
        for pp in range(max(2, least, len(rooms)), min(sum(rooms), self.layers // self.shape.vpp) + 1):
            if self.pinned in (None, pp) and self.shape.places(self.m, pp) == pp:
                most = [min(room, pp - len(rooms) + 1) for room in rooms]
                ways = (
                    counts for counts in product(*(range(1, one + 1) for one in most[1:])) if 0 < pp - sum(counts) <= most[0]
                )
                found = list(islice(ways, COUNTS + 1))
                for counts in found if len(found) <= COUNTS else []:
                    yield pp, [pp - sum(counts), *counts]
                if len(found) > COUNTS:
                    yield pp, most

    def caps(self, seconds: float) -> list[int]:
        """Most layers of a place of each class by its slots alone."""
        return [math.floor(min(seconds / (self.m * option.layer_seconds), self.layers)) for option in self.order]

    def _could(self, counts: Sequence[int], seconds: float) -> bool:
        """Whether so many places hold all layers by their slots alone."""
        return sum(count * most for count, most in zip(counts, self.caps(seconds), strict=True)) >= self.layers

    @functools.cached_property
    def first_tail(self) -> float:
        """Least seconds of the first place behind its last backward."""
        ends = self.order if self.loose else self.order[:1]
        return min(option.cost("first", 1).tail(self.config, self.tied) for option in ends)

    @functools.cached_property
    def rates(self) -> list[tuple[float, float]]:
        """Seconds of a layer's forward, and of it and its inputs' gradients, by class."""
        pairs = [(option.cost("middle", 1), option.cost("middle", 2)) for option in self.order]
        return [(two.forward - one.forward, two.forward - one.forward + two.inputs - one.inputs) for one, two in pairs]

    def place(self, i: int, role: str, layers: int) -> tuple[float, float, float, float]:
        """Of a place: when its gathers let its work begin, its slots, what comes behind the last, and a weight gradient."""
        key = i, role, layers
        if key not in self._places:
            cost = self.order[i].cost(role, layers)
            tail = cost.tail(self.config, self.tied if role != "middle" else 0.0)
            self._places[key] = cost.begin(-math.inf, self.config), self.m * cost.slot, tail, cost.weight
        return self._places[key]


class _Filling:
    """Layers on the places of a pipeline in a given time, from the last place to the first."""

    def __init__(self, reach: Reach, seconds: float, rooms: list[int], pp: int | None):
        self.reach, self.seconds, self.rooms, self.pp = reach, seconds, rooms, pp
        self.caps = reach.caps(seconds)
        self.exact = sum(rooms) == pp
        classes = range(len(rooms))
        self.borders = [sum(reach.borders[:i]) for i in classes]
        self.hop = [min(reach.messages[: i + 1]) for i in classes]
        self.longest = [max(1, *self.caps[: i + 1]) for i in classes]
        self.by_rate = [[sorted((reach.rates[c][way], c) for c in range(i + 1)) for i in classes] for way in (0, 1)]

    def done(self) -> bool:
        """Whether all layers find a place."""
        left, order, loose = self.reach.layers, self.reach.order, self.reach.loose
        for i in reversed(range(len(order))):
            for index in range(self.rooms[i]):
                after = index if loose else len(order) - 1 - i + index
                if (loose or (i == 0 and after)) and self._holds(i, "first", left, left, after):
                    return True
                roles = ("last", "middle") if loose and not index else ("middle",) if after else ("last",)
                k = max(self._most(i, role, left, after) for role in roles)
                if k <= 0:
                    break
                left -= k
                if not left:
                    return True
        return False

    def every(self, most: int) -> list[tuple[tuple[int, int], ...]]:
        """Layers on every place that may be done in time, as (class, layers); no more of them than `most`."""
        places = [i for i, room in enumerate(self.rooms) for _ in range(room)]
        room = self._bounds(places)
        found: list[tuple[tuple[int, int], ...]] = []
        if room is None:
            return found
        before = [sum(room[:place]) for place in range(len(places))]
        pending: list[tuple[int, tuple[tuple[int, int], ...]]] = [(self.reach.layers, ())]
        while pending and len(found) < most:
            left, behind = pending.pop()
            place = len(places) - 1 - len(behind)
            role = "last" if not behind else "middle" if place else "first"
            least = left - before[place] if place else left
            for k in range(max(least, self.reach.shape.vpp), min(room[place], left - place * self.reach.shape.vpp) + 1):
                if not self._holds(places[place], role, k, left, len(behind)):
                    break
                row = ((places[place], k), *behind)
                if place:
                    pending.append((left - k, row))
                else:
                    found.append(row)
        return found

    def _bounds(self, places: list[int]) -> list[int] | None:
        """Most layers of every place, whatever the others hold; None where they cannot hold all."""
        left, least, found = self.reach.layers, self.reach.shape.vpp, []
        for after, i in enumerate(reversed(places)):
            before = (len(places) - 1 - after) * least
            role = "last" if not after else "middle" if before else "first"
            k = min(self.caps[i], self._room(i, role, after))
            while k > 0 and not self._holds(i, role, k, max(left, k + before) if before else k, after):
                k -= 1
            if k < least:
                return None
            left = max(left - k, before)
            found.append(k)
        return found[::-1] if sum(found) >= self.reach.layers else None

    def _most(self, i: int, role: str, left: int, after: int) -> int:
        """Most layers that the next place holds in time, with `left` layers in it and before it."""
        k = min(self.caps[i], left - (0 if self.reach.loose else max(i, 1)), self._room(i, role, after))
        while k > 0 and not self._holds(i, role, k, left, after):
            k -= 1
        return k

    def _room(self, i: int, role: str, after: int) -> int:
        shape, places = self.reach.shape, self.pp or after + 1
        if self.reach.chunked and self.pp is None:
            return self.reach.order[i].room(role, ((1, 0),))
        enough = shape.enough(self.reach.m, places)
        held = schedules.in_flight(shape.schedule, places - 1 - after, places, enough, shape.vpp)
        return self.reach.order[i].room(role, held)

    def _holds(self, i: int, role: str, k: int, left: int, after: int) -> bool:
        """Whether a place with k layers, and `left` - k before it, may be done in time."""
        reach, before = self.reach, left - k
        if role == "first" and k > min(self.caps[i], self._room(i, role, after)):
            return False
        lead, slots, tail, weight = reach.place(i, role, k)
        forward, both, hops = self._before(i, before, after)
        ahead = self.borders[i] + max(hops - i, 0) * self.hop[i]
        busy = max(forward + ahead, lead) + slots
        if busy + tail > self.seconds:
            return False
        if not before:
            return True
        own = reach.messages[i] if reach.waits else 0.0
        owed = self._owed(i, before, after) * weight if reach.splits else 0.0
        return busy - owed + both - forward + ahead - own + reach.first_tail <= self.seconds

    def _owed(self, i: int, before: int, after: int) -> int:
        """Most weight gradients that a place with so many layers before it may leave behind its last backward."""
        shape = self.reach.shape
        place = min(before, sum(self.rooms[: i + 1]) - 1)
        places = place + 1 + after
        return schedules.weights_behind(shape.schedule, place, places, shape.enough(self.reach.m, places), shape.vpp)

    def _before(self, i: int, layers: int, after: int) -> tuple[float, float, int]:
        """Least seconds of forwards, and with inputs' gradients, and least messages, of layers before a place."""
        if not layers:
            return 0.0, 0.0, 0
        vpp = self.reach.shape.vpp
        most = layers // vpp if self.pp is None else self.pp - 1 - after
        fewest = most if self.exact else max(0 if self.reach.loose else i, -(-layers // self.longest[i]))
        if vpp == 1:
            return self._least(i, layers, 0), self._least(i, layers, 1), fewest
        chunks = max((layers - most * (vpp - 1)) / vpp, fewest)
        return chunks * self.by_rate[0][i][0][0], chunks * self.by_rate[1][i][0][0], fewest

    def _least(self, i: int, layers: int, which: int) -> float:
        """Layers on the classes up to the i-th, as many as can be where they take the least."""
        found = 0.0
        for rate, c in self.by_rate[which][i]:
            here = min(layers, self.caps[c] * self.rooms[c])
            found, layers = found + rate * here, layers - here
            if not layers:
                break
        return found
