"""Layers that the stages of a placement with mixed stages may hold, if a step ends within T seconds.

A replica takes cycle = s + k c seconds for one microbatch on a stage of k layers; with fill and drain as in
`planner.bounds.deadline_test`, it processes at most

    floor((T - fill - tail) / cycle)     and     floor((T - fill - drain) / cycle)

microbatches in T seconds, where a schedule that splits the backward may put off weight gradients: there, the second limit is
that of forwards and gradients of inputs, a share of both. The replicas of a stage together must process all microbatches, and
where no framework runs unlike numbers, or each has one, each replica as many as the others; this bounds k from above. As in
`planner.bounds.greedy_filling`, stages are filled from the last to the first; if layers are left over, no plan of the placement
finishes within T. The exchange argument given there needs feasibility that is monotone in k, so the tail is the least one of
this and all larger sizes that compute in time. The b layers before a stage are one on each stage there, and the others on the
fastest of these, as many as each may have. No stage has more layers than it holds beside the fewest before it, so the filling
itself says how many that are, and is repeated with them.

Messages are part of fill and of drain. Where every schedule waits until a message has left, those of a microbatch are part of
its cycle, too; but reductions do not wait for the last message back. Replicas with equal numbers of microbatches that one node
holds at every stage keep step, so their messages share links (`planner.bounds.mixed_groups`). Of messages behind compute, no
more can leave a node in T seconds, in both directions, than its links carry.

A stage q may gather for long before its first forward, and reduce for long after its last backward, for G and R seconds. So

    G + fill from q to s + m cycle + drain from s to q + R

on a stage s behind it. Several stages on one node share its links. A link takes G seconds for gathers before the first
microbatch has left the last of these stages, stage q, and R seconds for reductions after the last one has come back to it
(`planner.costs.mixed_rings`). So m microbatches of a replica take

    G + (m - 1) cycle + max(R, forward / n + backward + tail)                 or longer on stage q of n buckets,
    G + fill from q to s + m cycle + max(tail, drain from s to q + R)         or longer on a stage s behind it;

beside R, cycle and drain are again those of forwards and gradients of inputs. Links carry layers: the more layers the stages
up to q have, the less time is left for those behind. As the filling comes to q, the fewest layers up to q are sought for which
the stages behind hold the others.

Every simplification is a relaxation: the all-to-all of experts does not count, and where replicas may have unlike numbers, each
stage may distribute the microbatches over its replicas independently.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from planner.bounds.mixed_groups import groups
from planner.bounds.placed_deadline import Around, DeadlineOf, OfSize, SlowStage, alike_or_all, least_from
from planner.costs.mixed_rings import NOTHING, Load, Shared, least_seconds, least_together
from planner.costs.mixed_stages import MixedStageCosts, geometry
from planner.space.device_slots import StageSlots
from planner.space.mixed_schedules import runs_alike, variants_of_mixed
from planner.space.shape import Shape
from sim.analytic.stage_costs import StageCost
from sim.plan.round_trips import held_forwards
from sim.plan.schedules import Schedule
from sim.units import Seconds

ROUNDED = 1e-9
"""Relative error of a sum of microbatches, above that of floats."""


class PlacedStages:
    """Placed stages, and the speed of each group of identically placed replicas on each stage.

    `schedules`: those that a plan may have. Raises NoRoute or NotModelled where no plan has this placement."""

    def __init__(self, costs: MixedStageCosts, shape: Shape, placed: tuple[StageSlots, ...], schedules: Iterable[Schedule]):
        self.costs, self.shape, self.placed, self.schedules = costs, shape, placed, list(schedules)
        self.waits = not any(one.OVERLAPS_SENDS for one in self.schedules)
        self.splits = any(one.SPLITS_BACKWARD for one in self.schedules)
        self.layers = costs.workload.model.layers
        self.total = costs.workload.global_batch_size // shape.microbatch_size
        self.ends = [(stage == 0, stage == len(placed) - 1) for stage in range(len(placed))]
        self._kinds = [(geometry(stage, shape.tp), ends) for stage, ends in zip(placed, self.ends, strict=True)]
        self._ends: dict[tuple[object, int], tuple[Seconds, Seconds, float]] = {}
        self._least: dict[tuple[object, int], list[Around]] = {}
        self._by_memory: dict[int, int] = {}
        self.alike = runs_alike(costs.context.request, shape, len(placed), self.schedules)
        even, names = self.total // shape.dp if self.alike else 0, [one.NAME for one in self.schedules]
        held = [min(held_forwards(name, stage, len(placed), even) for name in names) for stage in range(len(placed))]
        self.groups = groups(costs, shape, placed, self.waits, self.alike, held)
        self.replicas = [group[0].replicas for group in self.groups]
        self._many = sum(self.replicas)
        self._asked, self._answer = (math.inf, -1.0), list[int]() or None
        self.each = [alike_or_all([one.each for one in group]) for group in self.groups]

    @functools.cached_property
    def links(self) -> tuple[tuple[Load, ...], ...]:
        """The links that gradients and weights load; none where plans may have several ZeRO stages."""
        return (
            self.costs.rings.loads(replace(self.shape, schedule="1f1b"), self.placed).links if self.has_one_zero_stage else ()
        )

    @functools.cached_property
    def has_one_zero_stage(self) -> bool:
        """Whether all plans have the ZeRO stage of the shape."""
        variants = variants_of_mixed(self.costs.context.request, self.shape)
        return {one.zero_stage for one in variants} == {self.shape.zero_stage}

    @functools.cached_property
    def ending(self) -> dict[int, list[tuple[Load, ...]]]:
        """Last stage -> the links that it and stages before it load."""
        found: dict[int, list[tuple[Load, ...]]] = {}
        for link in self.links:
            found.setdefault(link[-1].stage, []).append(link)
        return found

    @functools.cached_property
    def inputs(self) -> float:
        """Least fraction of a stage's seconds that are forward and gradients of inputs, which no schedule puts off."""
        return _inputs(self) if self.splits else 1.0

    def within(self, seconds: float, forward: float) -> bool:
        """Whether some plan of the placement might finish within `seconds` (False is a proof that none does).

        forward: least fraction of a layer's seconds that is its forward; 0 leaves out fill, drain, tails and memory (quick)."""
        return self.most_within(seconds, forward) is not None

    def most_within(self, seconds: float, forward: float) -> list[int] | None:
        """Most layers of each stage of the plans that might finish within `seconds`; None where none does. forward: as in
        `within`.

        The fewer layers each stage may have, the longer those before a stage take at least. So stages are filled again with
        what they can have at most, until that no longer falls. What takes longest to compute counts last."""
        if self._asked != (seconds, forward):
            self._asked, self._answer = (seconds, forward), _most_within(self, seconds, forward)
        return self._answer

    def filled(self, test: DeadlineOf, tails: bool, links: bool) -> list[int]:
        """Most layers of each stage; none on some stage where the stages do not hold all layers.

        tails: gathers before the first forward and what follows the last backward count. links: the stages behind links that
        gradients and weights load have less time."""
        left, most = self.layers, [0] * len(self.placed)
        for stage in range(len(self.placed) - 1, -1, -1):
            if links and stage < len(self.placed) - 1:
                left = self._least_left(stage, left, test)
            most[stage] = self._most_layers(stage, left, test, tails=tails) if left <= self.layers else 0
            if not most[stage]:
                return most
            left = max(left - most[stage], stage)  # the stages before have a layer each
        return most if left <= 0 else [0] * len(self.placed)

    def _least_left(self, stage: int, left: int, test: DeadlineOf) -> int:
        """Fewest layers, `left` or more, of a stage and those before it, whose links leave the stages behind time for the other
        layers; more than all layers where no number does."""
        for link in self.ending.get(stage, ()):
            outside = sum(test.most[: stage + 1]) - sum(test.most[load.stage] for load in link)
            while left <= self.layers:
                shared = least_together(link, left - outside)
                if self._hold(stage + 1, self.layers - left, replace(test, after=stage, shared=shared)):
                    break
                left += 1
        return left

    def _hold(self, first: int, left: int, test: DeadlineOf) -> bool:
        """Whether the stages from `first` on hold so many layers."""
        for stage in range(len(self.placed) - 1, first - 1, -1):
            held = self._most_layers(stage, left, test, first)
            if not held:
                return False
            left = max(left - held, stage - first)
        return left <= 0

    def _most_layers(self, stage: int, left: int, test: DeadlineOf, first: int = 0, tails: bool = True) -> int:
        """Most layers of a stage, with `left` layers or more in it and those before it from `first` on; 0 where it cannot hold
        one. tails: as in `filled`."""
        largest, least, shared = test.most[stage], (0.0, 0.0, 0.0), NOTHING
        known = self._least.setdefault((self._kinds[stage], largest), [])
        for k in range(largest, 0, -1):
            before = max(left - k, 0)
            if tails:
                least = least_from(known, k, largest, functools.partial(self.around, stage))
                shared = self._shared(stage, k, before, first, test)
            if self._holds(OfSize(stage, k, before, *least), test, shared):
                return k
        return 0

    def around(self, stage: int, k: int) -> Around:
        """Those of a stage of k layers: the least on any type of its devices."""
        kind = self._kinds[stage], k
        if kind not in self._ends:
            config, found = self.costs.config(self.shape, len(self.placed)), list(self.costs_of(stage, k))
            begins = [one.begin(0.0, config) for one in found] if self.has_one_zero_stage else [0.0]
            self._ends[kind] = min(begins), min(one.tail(config) for one in found), min(1 / one.parts for one in found)
        return self._ends[kind]

    def most_by_compute(self, stage: int, seconds: float) -> int:
        """Most layers of a stage by the cycles of all microbatches alone."""
        sizes, test = range(1, self.layers + 1), DeadlineOf(seconds, 0.0, ())
        return bisect.bisect_left(sizes, True, key=lambda k: not self._holds(OfSize(stage, k), test, NOTHING))

    def most_by_memory(self, stage: int) -> int:
        """Most layers of a stage that its devices hold beside the microbatches in flight: one, where replicas may have numbers
        of their own."""
        if stage not in self._by_memory:
            able = (replace(self.shape, schedule=one.NAME) for one in self.schedules)
            many = max(self.total // self.shape.dp, 1) if self.alike else 1
            most = max(self.costs.most(shape, self.placed[stage], stage, len(self.placed), many) for shape in able)
            self._by_memory[stage] = most
        return self._by_memory[stage]

    def _shared(self, stage: int, k: int, before: int, first: int, test: DeadlineOf) -> Shared:
        """Least seconds of the links whose last stage this is, of k layers, where the stages from `first` to it have so many
        layers `before` it.

        The other stages of a link have at least the layers that those which do not load it cannot hold."""
        links, gathers, both = self.ending.get(stage, []), 0.0, 0.0
        for link, outside in zip(links, test.outside(stage, first, links), strict=True):
            shared = least_seconds(link, k, before - outside)
            gathers, both = max(gathers, shared.gathers), max(both, shared.both)
        return Shared(gathers, both)

    def holds_of_split(self, one: OfSize, test: DeadlineOf) -> bool:
        """Whether a stage holds so many layers, where those before it are known, too."""
        return self._holds(one, test, self._shared(one.stage, one.layers, one.before, 0, test))

    def _holds(self, one: OfSize, test: DeadlineOf, shared: Shared) -> bool:
        """Whether the replicas of a stage have time for all microbatches and the tail. shared: seconds of the links whose last
        stage this is."""
        done, k, first = 0.0, one.layers, 0 if test.after is None else test.after + 1
        for group, each in zip(self.groups, self.each, strict=True):
            here = group[one.stage]
            cycle, both = here.start + k * here.each + here.sent, test.passed(each, first, one.stage, one.before)
            forward, backward = (start + k * each for start, each in (here.forward, here.backward))
            until, tail, held = test.seconds, one.tail + here.tied, here.held.seconds(cycle - here.sent, backward)
            if test.forward:
                arrived, drained = here.arrived, here.drained
                if test.after is not None:
                    begin = group[test.after]
                    arrived, drained = arrived - begin.arrived, drained - begin.drained - begin.back
                until -= max(test.shared.gathers + arrived + both * test.forward, one.begin) + tail - here.back
                while_inputs = test.seconds - test.shared.both - both * self.inputs - drained
                for slow in test.slow if test.after is None else ():
                    if slow.stage >= one.stage:
                        break
                    passed = test.passed(each, slow.stage, one.stage, max(one.before - slow.outside, 1))
                    on_way = drained - group[slow.stage].arrived - group[slow.stage].returned
                    while_inputs = min(while_inputs, test.seconds - slow.seconds - passed * self.inputs - on_way)
                until = min(until, while_inputs / self.inputs)
            times: float = math.floor((until - held) / cycle)
            if test.forward:
                behind = test.seconds - shared.gathers - forward * one.share - backward - tail
                behind = min(behind, (test.seconds - shared.both) / self.inputs) - held
                times = min(times, 1 + math.floor(behind / cycle))
                if here.lane:  # of all replicas together, which may have numbers of their own
                    most = test.seconds / here.lane
                    times = min(times, math.floor(most) if self.alike else most)
            if times < 1 or (self.alike and times * self._many < self.total):
                return False
            done += here.replicas * times
        return self.alike or done * (1 + ROUNDED) >= self.total

    def costs_of(self, stage: int, k: int) -> Iterator[StageCost]:
        """Costs of a stage of k layers, without sends, on each type of its devices."""
        specs = {run.cluster.node.device.name: run.cluster.node.device for run in self.placed[stage]}
        for spec in specs.values():
            cost = self.costs.cost(self.shape, self.placed[stage], k, self.ends[stage], spec)
            yield cost.sending(0.0, 0.0, 0.0, cost.weight if self.splits else 0.0)


def _most_within(stages: PlacedStages, seconds: float, forward: float) -> list[int] | None:
    """`PlacedStages.most_within`."""
    every = range(len(stages.placed))
    most = [stages.most_by_compute(stage, seconds) for stage in every]
    if not forward:
        return most if sum(most) >= stages.layers and all(most) else None
    most = [min(most[stage], stages.most_by_memory(stage)) for stage in every]
    for tails, ends, links in ((False, False, False), (True, False, False), (True, True, False), (True, True, True)):
        again = not links or bool(stages.links)
        while again:
            if not all(most):
                return None
            slow = tuple(_slow(stages, most)) if ends else ()
            found = stages.filled(DeadlineOf(seconds, forward, most, slow=slow), tails, links)
            again, most = found != most and not links, found
    return most if all(most) else None


def _slow(stages: PlacedStages, most: list[int]) -> Iterator[SlowStage]:
    """The stages whose gathers and reductions take longer than those of each stage before them. most: layers of each stage."""
    longest = 0.0
    for stage, largest in enumerate(most):
        ends = (stages.around(stage, k) for k in range(1, largest + 1))
        seconds = min(begin + tail for begin, tail, _ in ends)
        if seconds > longest:
            longest = seconds
            yield SlowStage(stage, seconds, sum(most[:stage]))


def _inputs(stages: PlacedStages) -> float:
    """`PlacedStages.inputs` where a schedule splits the backward."""
    weights = 0.0
    for stage in range(len(stages.placed)):
        for one, two in zip(stages.costs_of(stage, 1), stages.costs_of(stage, 2), strict=True):
            weights = max(weights, one.weight / one.both, (two.weight - one.weight) / (two.both - one.both))
    return 1.0 - weights
