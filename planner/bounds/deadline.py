"""The deadline test: whether some pipeline over given classes of machines, in a given order, can finish in a given time.

Its negative answers are proofs, so it yields lower bounds on the step time. Stages (pipeline places) are filled with layers
from the last one to the first. A stage of k layers with b layers before it, of m microbatches, needs of T seconds

    max(fill(b), begin(k)) + m slot(k) + tail(k)                                          <= T     (its own end)
    max(fill(b), begin(k)) + max(m busy(k) - owed weight(k), m lane(k)) + drain(b) + least first tail   <= T     (the way back)

fill(b) are the forwards and messages through the layers before, drain(b) the gradients of inputs and messages back, both over
the classes on which they take least; begin is when the gathers of weights let its work begin; slot is what a microbatch takes
of the stage, of its gradient network or of its message lane, busy what it takes of the stage; owed are the weight gradients
that the schedule leaves behind the last backward; tail is what follows the last backward on the stage itself.

Greedy filling is a proof because what a stage holds is monotone. With b fixed, every left-hand side is replaced by its least
value over k and all larger sizes (`_Sizes`), so if k layers fit, fewer do; fill and drain grow with b. Let r(n) be the fewest
layers that a stage can leave for those before it when n are left. If n' <= n, the stage can leave r(n) of n' too, because it
then holds fewer layers with as many before it; so r is monotone, and the most that each stage can hold, one after the other,
leave the fewest. Memory counts only the stages that must lie behind: all those of the same class that are filled already, and
one of each later class (all, where the number of stages is given).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, islice, pairwise, permutations, product

from planner.costs.context import PlanningContext, Stages
from planner.costs.node_classes import NodeClass
from planner.placement.leaves import oversubscribed
from sim.analytic.stage_costs import StageCost
from sim.errors import NoRoute
from sim.hardware.cluster import Cluster
from sim.plan import schedules

PRECISE = 1e-3
"""Relative width at which the search for a bound stops."""
CLASSES = 4
"""Number of classes up to which every order of every set is tested; of more, a test that ignores the order has to do."""
COUNTS = 200
"""Ways to spread the stages of a pipeline over its classes that are tested one by one, where the schedule asks for a given
number of stages; of more, their largest counts are tested at once."""

Pipeline = tuple[tuple[int, int], ...]
"""(class, layers) of every stage in pipeline order."""
Orders = frozenset[tuple[str, ...]] | None
"""Orders of classes, each as the names of their clusters; None stands for all of them."""


def deadline_bound(tests: Sequence[DeadlineTest | AnyOrder], least: float, cutoff: float) -> float:
    """A lower bound in seconds on the step of all pipelines of some tests: at least `least`, at most `cutoff`."""
    low, high = least, cutoff
    if low >= high or not any(test.within(high) for test in tests):
        return max(low, high)
    while math.isfinite(high) and high > low * (1 + PRECISE):
        middle = math.sqrt(low * high) if low > 0 else high / 2
        if any(test.within(middle) for test in tests):
            high = middle
        else:
            low = middle
    return low


def deadline_tests(
    context: PlanningContext, classes: Sequence[NodeClass], seconds: float, either: bool = False, among: Orders = None
) -> list[DeadlineTest | AnyOrder]:
    """Tests of all pipelines of two or more stages on these classes: those that do not rule out a step of `seconds`.

    `either` as in `DeadlineTest`; `among` are the orders of classes that are not ruled out already."""
    whole = AnyOrder(classes)
    if not whole.within(seconds):
        return []
    if len(classes) > CLASSES:
        return [whole]
    every = (DeadlineTest(context, order, seconds, either) for order in _ordered(classes, seconds, among))
    return [test for test in every if test.within(seconds)]


def orders_within(
    test: Callable[..., AnyState],
    context: PlanningContext,
    classes: Sequence[NodeClass],
    holders: Sequence[NodeClass],
    seconds: float,
    among: Orders = None,
) -> Orders:
    """Orders of classes in which some pipeline of two or more stages of a family of shapes might finish within `seconds`.

    `test` is made for each order of `classes`; `holders` are the same classes under the ZeRO stage that needs least memory;
    `among` are the orders that are not ruled out already."""
    if not AnyOrder(holders).within(seconds):
        return frozenset()
    if len(classes) > CLASSES:
        return None
    every = _ordered(classes, seconds, among)
    return frozenset(_names(order) for order in every if test(context, order, holders, seconds).within(seconds))


def _ordered(classes: Sequence[NodeClass], seconds: float, among: Orders) -> Iterator[tuple[NodeClass, ...]]:
    """Every set of classes in every order, without sets whose stages cannot compute all layers in so many seconds."""
    able = [option for option in classes if option.microbatches * option.layer_seconds <= seconds]
    for size in range(1, len(able) + 1):
        for some in combinations(able, size):
            if sum(option.capacity * _cap(option, seconds) for option in some) >= some[0].workload.model.layers:
                yield from (order for order in permutations(some) if among is None or _names(order) in among)


def _names(order: Sequence[NodeClass]) -> tuple[str, ...]:
    return tuple(option.cluster.name for option in order)


class AnyOrder:
    """The deadline test of all pipelines on some classes, whatever their order: by slots and memory, without fill and drain."""

    exact = False

    def __init__(self, classes: Sequence[NodeClass]):
        self.order, self.m = tuple(classes), classes[0].microbatches if classes else 0

    def within(self, seconds: float) -> bool:
        """Whether some pipeline might finish within `seconds` (False is a proof that none does)."""
        return sum(option.capacity * self._most(option, seconds) for option in self.order) >= self._layers

    @property
    def _layers(self) -> int:
        return self.order[0].workload.model.layers if self.order else 1

    def _most(self, option: NodeClass, seconds: float) -> int:
        """Most layers of one stage: beside the fewest microbatches in flight, with its slots alone."""
        one = ((option.shape.vpp, 0),)
        return min(option.room("middle", one), _cap(option, seconds))

    def pipelines(self, seconds: float, most: int) -> list[Pipeline] | None:
        """None: they are not listed."""
        return None


def _cap(option: NodeClass, seconds: float) -> int:
    """Most layers of a stage by the compute of its layers alone."""
    return math.floor(min(seconds / (option.microbatches * option.layer_seconds) * (1 + 1e-12), option.workload.model.layers))


@dataclass(frozen=True, slots=True)
class _Size:
    """Seconds of a stage of a given size.

    begin: when its gathers let the work begin; own: m slots and the tail; both: begin and own; busy: m microbatches of its
    ranks' time; lane: m messages on their lane; weight: one weight gradient; tail: what follows the last backward."""

    begin: float
    own: float
    both: float
    busy: float
    lane: float
    weight: float
    tail: float


class _Sizes:
    """Seconds of the stages of one class in one role by their layers, up to a largest size; and their monotone envelope.

    The envelope of a size has, in `begin`, `own` and `both`, the least of it and of all larger sizes, which makes them grow
    with the size; the others grow by themselves. Sizes are computed from the largest down, as far as they are asked for."""

    def __init__(self, reach: DeadlineTest, i: int, role: str, largest: int):
        self._reach, self._i, self._role, self._largest = reach, i, role, largest
        self._exact: list[_Size] = []
        self._envelope: list[_Size] = []

    def exact(self, layers: int) -> _Size:
        """Seconds of a stage of so many layers."""
        self._down_to(layers)
        return self._exact[self._largest - layers]

    def envelope(self, layers: int) -> _Size:
        """The least seconds of it and of all larger stages."""
        index = self._largest - layers
        if index >= len(self._envelope):
            self._down_to(layers)
        return self._envelope[index]

    def _down_to(self, layers: int) -> None:
        for k in range(self._largest - len(self._exact), layers - 1, -1):
            size = self._size(k)
            above = self._envelope[-1] if self._envelope else size
            least = min(size.begin, above.begin), min(size.own, above.own), min(size.both, above.both)
            self._exact.append(size)
            self._envelope.append(_Size(*least, size.busy, size.lane, size.weight, size.tail))

    def least_tail(self) -> float:
        """The least tail of all sizes."""
        self._down_to(1)
        return min(size.tail for size in self._exact)

    def _size(self, layers: int) -> _Size:
        reach, m = self._reach, self._reach.m
        cost = reach.cost(self._i, self._role, layers)
        begin = cost.begin(-math.inf, reach.config) if not reach.either else -math.inf
        tail = reach.tail(cost, self._role)
        own = m * cost.slot + tail
        return _Size(begin, own, max(begin, 0.0) + own, m * cost.busy, m * cost.lane, cost.weight, tail)


class DeadlineTest:
    """The deadline test of pipelines over classes in an order, each of which has one stage or more.

    `horizon` is the longest time in seconds that will be asked about. With `either` it holds whether weights are gathered
    ahead of the next step's forwards (as in the shape) or behind the optimizer: then neither work nor tail waits for them."""

    whole_chunks = True
    """Whether the first virtual stage of a stage of k layers has k // vpp layers at least, and not one."""

    def __init__(self, context: PlanningContext, order: tuple[NodeClass, ...], horizon: float = math.inf, either: bool = False):
        self.either = either
        self.order, self.shape, self.m, self.horizon = order, order[0].shape, order[0].microbatches, horizon
        self.layers, self.config, self.pinned = order[0].workload.model.layers, order[0].config, context.request.wishes.pp
        schedule = schedules.get(self.shape.schedule)
        self.waits, self.chunked, self.splits = not schedule.OVERLAPS_SENDS, schedule.CHUNKED, schedule.SPLITS_BACKWARD
        self.context, self.nic = context, ""
        self.clusters = tuple(option.cluster for option in order)
        with suppress(NoRoute):
            self.nic = context.nic_of(self.clusters)
        self.messages = [self._inside(option) for option in order]
        self.borders = [self._message(a, b) for a, b in pairwise(self.clusters)]
        most = min(order[-1].capacity, self.pinned or self.layers, self.layers)
        self.tied = context.least_tied(self.clusters[0], self.clusters[-1], self.shape, most, self.nic) if self.nic else 0.0
        self._capacities = [min(option.capacity, self.pinned or option.capacity) for option in order]
        self._sizes: dict[tuple[int, str], _Sizes] = {}
        self.holders: tuple[NodeClass, ...] = order
        """The classes as they hold memory."""
        self.exact = not any(oversubscribed(cluster) for cluster in self.clusters)
        """Whether the evaluator's seconds are a bound: stages on an oversubscribed fabric may lie better than as listed."""
        self.possible = bool(self.nic) and all(map(math.isfinite, (*self.borders, self.tied)))

    def _message(self, source: Cluster, target: Cluster) -> float:
        """Least seconds of a message between neighbouring stages on two clusters of these pipelines."""
        return self.context.message(source, target, self.shape, self.nic, self.clusters) if self.nic else math.inf

    def _inside(self, option: NodeClass) -> float:
        """Least seconds of a message between neighbouring stages of a class; 0 where it holds but one."""
        seconds = self._message(option.cluster, option.cluster) if option.capacity > 1 else 0.0
        return seconds if math.isfinite(seconds) else 0.0

    def cost(self, i: int, role: str, layers: int) -> StageCost:
        """Least costs of a stage of a class, with the least messages that one of its role sends in these pipelines."""
        return self.order[i].with_messages(role, layers, *self.sends(i, role))

    def sends(self, i: int, role: str) -> tuple[float, float]:
        """Least seconds of the messages that a stage sends to the next one and to the one before."""
        ahead = min([*self._inner(i), *self.borders[i : i + 1]], default=0.0) if role != "last" else 0.0
        return ahead, self.back(i) if role != "first" else 0.0

    def tail(self, cost: StageCost, role: str) -> float:
        """Seconds of a stage behind its last backward."""
        return cost.tail(self.config, self.tied if role != "middle" else 0.0)

    def room(self, i: int, role: str, after: int, pp: int | None) -> int:
        """Most layers for which a stage has memory, with so many stages behind it, of `pp` where that is given."""
        return self._room_under(self.shape.schedule, i, role, after, pp)

    def _room_under(self, schedule: str, i: int, role: str, after: int, pp: int | None) -> int:
        shape, stages = self.shape, pp or after + 1
        if self.chunked and pp is None:
            return self.holders[i].room(role, ((shape.vpp, 0),))
        held = schedules.in_flight(schedule, stages - 1 - after, stages, shape.enough(self.m, stages), shape.vpp)
        return self.holders[i].room(role, held)

    def owed(self, stage: int, stages: int) -> int:
        """Most weight gradients that a stage may leave behind its last backward."""
        return self._owed_under(self.shape.schedule, stage, stages)

    def _owed_under(self, schedule: str, stage: int, stages: int) -> int:
        return schedules.weights_behind(schedule, stage, stages, self.shape.enough(self.m, stages), self.shape.vpp)

    def back(self, i: int) -> float:
        """Least seconds of a message from a stage of a class to the one before it."""
        return min([*self._inner(i), *self.borders[max(i - 1, 0) : i]], default=0.0)

    def _inner(self, i: int) -> list[float]:
        return [self.messages[i]] if self.order[i].capacity > 1 else []

    def sizes(self, i: int, role: str) -> _Sizes:
        """Seconds of the stages of a class in a role, by layers. Tests of one kind share them where messages are equal."""
        if (i, role) not in self._sizes:
            kind = type(self).__name__, self.either, self.horizon
            key = *kind, role, *self.sends(i, role), self.tied if role != "middle" else 0.0
            shared = self.order[i].shared
            if key not in shared:
                shared[key] = _Sizes(self, i, role, max(_cap(self.order[i], self.horizon), 1))
            self._sizes[i, role] = shared[key]
        return self._sizes[i, role]

    def within(self, seconds: float) -> bool:
        """Whether some pipeline might finish within `seconds` (False is a proof that none does)."""
        if not self.possible or any(option.layer_seconds * self.m > seconds for option in self.order):
            return False
        if not self._fill(self._capacities, seconds):
            return False
        counts = self._carriable(seconds)
        return counts == self._capacities or self._fill(counts, seconds)

    def _fill(self, counts: list[int], seconds: float) -> bool:
        """Whether all layers find a stage in time, with at most so many stages of each class."""
        if not self._could(counts, seconds) or not all(counts):
            return False
        if not _Filling(self, seconds, counts, None).done():
            return False
        return not self.chunked or any(
            self._could(some, seconds) and _Filling(self, seconds, some, pp).done() and self._carried(some, pp, seconds)
            for pp, some in self._lengths(counts, seconds)
        )

    def pipelines(self, seconds: float, most: int) -> list[Pipeline] | None:
        """All pipelines that are not ruled out to finish within `seconds`; None where there are more than `most`."""
        found: list[Pipeline] = []
        counts = self._carriable(seconds) if self.possible else [0]
        if math.prod(counts) > most:
            return None
        for some in product(*(range(1, count + 1) for count in counts)):
            pp = sum(some)
            able = self.pinned in (None, pp) and 2 <= pp <= self.layers // self.shape.vpp
            if not able or self.shape.places(self.m, pp) != pp:
                continue
            if self._could(some, seconds) and self._carried(list(some), pp, seconds):
                found += _Filling(self, seconds, list(some), pp).every(most + 1 - len(found))
            if len(found) > most:
                return None
        return found

    def _carried(self, counts: list[int], pp: int, seconds: float) -> bool:
        """Whether the fullest link carries all messages of a pipeline with so many stages of each class in time."""
        if self.m * self._heaviest <= seconds or sum(counts) != pp:
            return True
        runs = tuple((option.cluster, 0, count) for option, count in zip(self.order, counts, strict=True))
        return self.m * self.context.load(runs, self.shape, self.nic, self.context.open, True) <= seconds

    @functools.cached_property
    def _heaviest(self) -> float:
        """More than what a microbatch's messages take on any link: those of a node's stages and their neighbours in a row."""
        ways = [(option, way) for option in self.order for way in range(len(option.costs))]
        pairs = [(one, way, one, way + 1) for one, way in ways if way + 1 < one.capacity]
        pairs += [(a, i, b, j) for a, i in ways for b, j in ways if a is not b]
        load = functools.partial(self.context.load, shape=self.shape, nic=self.nic, fleet=self.context.open)
        heaviest = max((load(((a.cluster, i, 1), (b.cluster, j, 1))) for a, i, b, j in pairs), default=0.0)
        return 2 * (max(len(option.costs) for option in self.order) + 1) * heaviest

    def _carriable(self, seconds: float) -> list[int]:
        """Most stages of each class whose messages the fullest link carries in time; 0 where it carries those of none."""
        found = []
        for i, (option, count) in enumerate(zip(self.order, self._capacities, strict=True)):
            most = min(count, 4 * len(option.costs) + 2)  # of more, the messages are the same
            if self.m * self._heaviest > seconds and self.m * self._load(i, most) > seconds:
                least = 1 if len(self.order) > 1 else 2  # a stage alone needs another class
                count = next((n for n in range(most - 1, least - 1, -1) if self.m * self._load(i, n) <= seconds), 0)
            found.append(count)
        return found

    def _load(self, i: int, stages: int) -> float:
        """Least seconds of a microbatch's messages on a link of the first so many stages of a class and of their neighbours."""
        mine, open_fleet = (self.order[i].cluster, 0, stages), self.context.open

        def beside(j: int) -> list[tuple[Stages, ...]]:
            """The stage of a neighbouring class, however it lies on its node."""
            if not 0 <= j < len(self.order):
                return [()]
            return [((self.order[j].cluster, way, 1),) for way in range(len(self.order[j].costs))]

        runs = ((*before, mine, *behind) for before, behind in product(beside(i - 1), beside(i + 1)))
        return min(self.context.load(run, self.shape, self.nic, open_fleet) for run in runs)

    def _lengths(self, most: list[int], seconds: float) -> Iterator[tuple[int, list[int]]]:
        """Numbers of stages for which the schedule is defined, with how many of them are of each class."""
        least = math.ceil(self.layers / max(self.caps(seconds)))
        for pp in range(max(2, least, len(most)), min(sum(most), self.layers // self.shape.vpp) + 1):
            if self.pinned in (None, pp) and self.shape.places(self.m, pp) == pp:
                room = [min(one, pp - len(most) + 1) for one in most]
                ways = (some for some in product(*(range(1, one + 1) for one in room[1:])) if 0 < pp - sum(some) <= room[0])
                found = list(islice(ways, COUNTS + 1))
                for some in found if len(found) <= COUNTS else []:
                    yield pp, [pp - sum(some), *some]
                if len(found) > COUNTS:
                    yield pp, room

    def caps(self, seconds: float) -> list[int]:
        """Most layers of a stage of each class by the compute of its layers alone."""
        return [_cap(option, seconds) for option in self.order]

    def _could(self, counts: Sequence[int], seconds: float) -> bool:
        """Whether so many stages hold all layers by their slots alone."""
        return sum(count * most for count, most in zip(counts, self.caps(seconds), strict=True)) >= self.layers

    @functools.cached_property
    def first_tail(self) -> float:
        """Least seconds of the first stage behind its last backward, over all sizes: buckets of more layers may hide more."""
        return self.sizes(0, "first").least_tail()

    @functools.cached_property
    def rates(self) -> list[tuple[float, float]]:
        """Seconds of a layer's forward, and of it and its inputs' gradients, by class."""
        pairs = [(self.cost(i, "middle", 1), self.cost(i, "middle", 2)) for i in range(len(self.order))]
        return [(two.forward - one.forward, two.forward - one.forward + two.inputs - one.inputs) for one, two in pairs]


class AnyState(DeadlineTest):
    """The deadline test of pipelines under every ZeRO stage, however weights are gathered: `order` is of the first stage.

    ZeRO 2 and 3 add reductions and gathers to ZeRO 1, which are left out here; ZeRO 3, with a bucket for each layer, has the
    shortest tail, and the least memory (`holders`)."""

    def __init__(self, context: PlanningContext, order: tuple[NodeClass, ...], holders: Sequence[NodeClass], horizon: float):
        super().__init__(context, order, horizon, True)
        named = {option.cluster.name: option for option in holders}
        self.holders = tuple(named[option.cluster.name] for option in order)

    def cost(self, i: int, role: str, layers: int) -> StageCost:
        """Least costs of a stage with a bucket for each layer."""
        return super().cost(i, role, layers).bucketed(layers)


class AnyChunks(AnyState):
    """`AnyState` for this number of virtual stages and all larger ones.

    Work waits for one layer of each stage before it at least, and a stage holds the activations of one microbatch at least."""

    whole_chunks = False

    def room(self, i: int, role: str, after: int, pp: int | None) -> int:
        """Most layers beside one microbatch."""
        return self.holders[i].room(role, ((self.shape.vpp, 0),))


class AnySchedule(AnyState):
    """`AnyState` for each of several schedules without virtual stages; `order` is of one that splits the backward.

    Ranks wait for no message to leave, and each stage may hold as little, and owe as many weight gradients, as under any of the
    schedules."""

    def __init__(
        self, context: PlanningContext, order: tuple[NodeClass, ...], holders: Sequence[NodeClass], horizon: float,
        names: tuple[str, ...],
    ):  # fmt: skip
        super().__init__(context, order, holders, horizon)
        self._names = names
        self._kept: dict[tuple[object, ...], int] = {}

    def sends(self, i: int, role: str) -> tuple[float, float]:
        """Nothing: some of the schedules overlap their messages, others have no lane."""
        return 0.0, 0.0

    def tail(self, cost: StageCost, role: str) -> float:
        """That of a whole backward, behind whose end less is left to reduce than behind a weight gradient's."""
        return super().tail(cost.sending(0.0, 0.0, 0.0, 0.0), role)

    def room(self, i: int, role: str, after: int, pp: int | None) -> int:
        """The most under any of the schedules."""
        key = i, role, after, pp
        if key not in self._kept:
            self._kept[key] = max(self._room_under(name, i, role, after, pp) for name in self._names)
        return self._kept[key]

    def owed(self, stage: int, stages: int) -> int:
        """The most under any of the schedules."""
        if (stage, stages) not in self._kept:
            self._kept[stage, stages] = max(self._owed_under(name, stage, stages) for name in self._names)
        return self._kept[stage, stages]


class _Filling:
    """Layers on the stages of a pipeline in a given time, from the last stage to the first.

    `pp` is the number of stages where it is given; `counts` are then those of each class, or the most of each."""

    def __init__(self, reach: DeadlineTest, seconds: float, counts: list[int], pp: int | None):
        self.reach, self.seconds, self.counts, self.pp = reach, seconds, counts, pp
        self.caps = reach.caps(seconds)
        self._limits: dict[tuple[int, str], int] = {}
        self.exact = sum(counts) == pp
        classes = range(len(counts))
        self.borders = [sum(reach.borders[:i]) for i in classes]
        self.hop = [min(reach.messages[: i + 1]) for i in classes]
        self.longest = [max(1, *self.caps[: i + 1]) for i in classes]
        self.by_rate = [[sorted((reach.rates[c][way], c) for c in range(i + 1)) for i in classes] for way in (0, 1)]

    def done(self) -> bool:
        """Whether all layers find a stage."""
        left = self.reach.layers
        for i in reversed(range(len(self.counts))):
            behind = sum(self.counts[i + 1 :]) if self.exact else len(self.counts) - 1 - i
            for after in range(behind, behind + self.counts[i]):
                if i == 0 and after and self._fits(0, "first", left, left, after):
                    return True
                k = self._most(i, "middle" if after else "last", left, after)
                if k <= 0:
                    break
                left -= k
        return False

    def every(self, most: int) -> list[Pipeline]:
        """All pipelines of these counts that may finish in time; no more of them than `most`."""
        stages = [i for i, count in enumerate(self.counts) for _ in range(count)]
        largest = self._largest(stages)
        found: list[Pipeline] = []
        if largest is None:
            return found
        before = [sum(largest[:stage]) for stage in range(len(stages))]
        pending: list[tuple[int, Pipeline]] = [(self.reach.layers, ())]
        while pending and len(found) < most:
            left, behind = pending.pop()
            stage = len(stages) - 1 - len(behind)
            role = "last" if not behind else "middle" if stage else "first"
            least = left - before[stage] if stage else left
            for k in range(max(least, self.reach.shape.vpp), min(largest[stage], left - stage * self.reach.shape.vpp) + 1):
                if self._holds(stages[stage], role, k, left, len(behind), False):
                    row = ((stages[stage], k), *behind)
                    if stage:
                        pending.append((left - k, row))
                    else:
                        found.append(row)
        return found

    def _largest(self, stages: list[int]) -> list[int] | None:
        """Most layers of every stage, whatever the others hold; None where they cannot hold all."""
        left, least, found = self.reach.layers, self.reach.shape.vpp, []
        for after, i in enumerate(reversed(stages)):
            before = (len(stages) - 1 - after) * least
            role = "last" if not after else "middle" if before else "first"
            k = min(self.caps[i], self.reach.room(i, role, after, self.pp))
            while k > 0 and not self._holds(i, role, k, max(left, k + before) if before else k, after):
                k -= 1
            if k < least:
                return None
            left = max(left - k, before)
            found.append(k)
        return found[::-1] if sum(found) >= self.reach.layers else None

    def _most(self, i: int, role: str, left: int, after: int) -> int:
        """Most layers that the next stage holds in time, with `left` layers in it and before it."""
        k = min(self._limit(i, role), left - max(i, 1), self.reach.room(i, role, after, self.pp))
        while k > 0 and not self._holds(i, role, k, left, after):
            k -= 1
        return k

    def _limit(self, i: int, role: str) -> int:
        """Most layers of a stage by its own end alone, with nothing before it."""
        if (i, role) not in self._limits:
            k, sizes = self.caps[i], self.reach.sizes(i, role)
            while k > 0 and sizes.envelope(k).both > self.seconds:
                k -= 1
            self._limits[i, role] = k
        return self._limits[i, role]

    def _fits(self, i: int, role: str, k: int, left: int, after: int) -> bool:
        """Whether a stage has time and memory for k layers."""
        return k <= min(self.caps[i], self.reach.room(i, role, after, self.pp)) and self._holds(i, role, k, left, after)

    def _holds(self, i: int, role: str, k: int, left: int, after: int, monotone: bool = True) -> bool:
        """Whether a stage with k layers, and `left` - k before it, may finish in time; by the envelope where `monotone`."""
        reach, before = self.reach, left - k
        sizes = reach.sizes(i, role)
        size = sizes.envelope(k) if monotone else sizes.exact(k)
        forward, both, hops = self._before(i, before, after)
        ahead = self.borders[i] + max(hops - i, 0) * self.hop[i]
        fill = forward + ahead
        if max(fill + size.own, size.both) > self.seconds:
            return False
        if not before:
            return True
        own = reach.back(i) if reach.waits else 0.0
        owed = self._owed(i, before, after) * size.weight if reach.splits else 0.0
        busy = max(fill, size.begin) + max(size.busy - owed - own, size.lane)
        back = busy + both - forward + ahead
        return back <= self.seconds and back + reach.first_tail <= self.seconds  # the tail takes long to find

    def _owed(self, i: int, before: int, after: int) -> int:
        """Most weight gradients that a stage with so many layers before it may leave behind its last backward."""
        stage = min(before, sum(self.counts[: i + 1]) - 1)
        return self.reach.owed(stage, stage + 1 + after)

    def _before(self, i: int, layers: int, after: int) -> tuple[float, float, int]:
        """Least seconds of forwards, and with inputs' gradients, and least messages, of layers before a stage."""
        if not layers:
            return 0.0, 0.0, 0
        vpp = self.reach.shape.vpp
        most = layers // vpp if self.pp is None else self.pp - 1 - after
        fewest = most if self.exact else max(i, -(-layers // self.longest[i]))
        if vpp == 1:
            return self._least(i, layers, 0), self._least(i, layers, 1), fewest
        chunks = max((layers - most * (vpp - 1)) / vpp, fewest) if self.reach.whole_chunks else fewest
        return chunks * self.by_rate[0][i][0][0], chunks * self.by_rate[1][i][0][0], fewest

    def _least(self, i: int, layers: int, which: int) -> float:
        """Layers on the classes up to the i-th, as many as can be where they take the least."""
        found = 0.0
        for rate, c in self.by_rate[which][i]:
            here = min(layers, self.caps[c] * self.counts[c])
            found, layers = found + rate * here, layers - here
            if not layers:
                break
        return found
