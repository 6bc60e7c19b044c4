"""Layers and microbatches of a placement with mixed stages, and the estimated seconds of its step.

Microbatches are assigned one by one to the replica that finishes them first, and layers to stages in the same way, as far as
memory allows (list scheduling; Graham, Bell System Technical Journal 45(9), 1966). This balances the stages, but a step takes
longer than its slowest stage: the first stages reduce their gradients last, and ranks wait for messages. So
`with_moved_layers` moves single layers between stages as long as the estimate of the whole step becomes shorter."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from planner.costs.mixed_stages import MixedStageCosts
from planner.space.device_slots import Run, StageSlots, minmax_layers, replica_groups
from planner.space.runnable import takes_unlike_microbatches
from planner.space.shape import Shape
from sim.analytic.pipeline_step import PipelineStage, stage_ends, weights_owed
from sim.errors import NoRoute, NotDefined, NotModelled
from sim.plan import schedules
from sim.units import Seconds

MOVES = 600
"""Estimates of steps after which no more layers of a candidate are moved (a guess): a third of a second."""

ROUNDED = 1e-9
"""Relative difference of two estimates that says nothing."""


@dataclass(frozen=True, slots=True)
class MixedCandidate:
    """The slots and layers of each stage, the microbatches of each replica, and estimated seconds of a step."""

    seconds: float
    shape: Shape
    stages: tuple[StageSlots, ...]
    layers: tuple[int, ...]
    microbatches: tuple[int, ...]


def candidate(costs: MixedStageCosts, shape: Shape, stages: tuple[StageSlots, ...], whole: bool) -> MixedCandidate | None:
    """The candidate of given stages, with its layers and microbatches; None where there is none.

    Layers are assigned by the speed of the stages, then microbatches by the speed of the replicas. whole: seconds include
    messages, gradients and the optimizer, and memory is checked; else seconds are compute alone, and memory is not checked."""
    workload, pp = costs.workload, len(stages)
    total = workload.global_batch_size // shape.microbatch_size
    try:
        even = max(total // shape.dp, 1)
        most = [costs.most(shape, stage, i, pp, even) if whole else workload.model.layers for i, stage in enumerate(stages)]
        ends = [(i == 0, i == pp - 1) for i in range(pp)]
        linear = [costs.linear_seconds(shape, stage, end) for stage, end in zip(stages, ends, strict=True)]
        layers = minmax_layers(linear, most, workload.model.layers, 1)
        if layers is None:
            return None
        groups = replica_groups(stages, shape.cp)
        slowest = [costs.slowest_stage(shape, group, layers) for group in groups]
        counts = [group[0].count // shape.cp for group in groups]
        if takes_unlike_microbatches(costs.context.request, shape, pp):
            microbatches = _shared(slowest, counts, total)
        else:
            microbatches = [total // shape.dp] * len(groups)
        if not microbatches or sum(m * count for m, count in zip(microbatches, counts, strict=True)) != total:
            return None
        per_replica = tuple(itertools.chain.from_iterable(map(itertools.repeat, microbatches, counts)))
        fill = sum(s + k * c for k, (s, c) in zip(layers, linear, strict=True))
        seconds = max(m * cycle for m, cycle in zip(microbatches, slowest, strict=True)) + (pp - 1) / pp * fill
        if whole:
            seconds = _WholeStep(costs, shape, stages, list(zip(microbatches, groups, strict=True))).seconds(layers)
        return MixedCandidate(seconds, shape, stages, layers, per_replica)
    except (NoRoute, NotDefined, NotModelled):
        return None


def with_moved_layers(costs: MixedStageCosts, one: MixedCandidate) -> MixedCandidate | None:
    """The candidate after single layers have moved between any two of its stages as long as the estimated step becomes shorter,
    the best move first; None where no move makes it shorter.

    Its seconds include messages, gradients and the optimizer, as those of the given candidate do."""
    shape, stages, pp = one.shape, one.stages, len(one.stages)
    groups, first = list[tuple[int, tuple[Run, ...]]](), 0
    for runs in replica_groups(stages, shape.cp):
        groups.append((one.microbatches[first], runs))
        first += runs[0].count // shape.cp
    most = [costs.most(shape, stage, i, pp, max(one.microbatches)) for i, stage in enumerate(stages)]
    best, tries, step = one, 0, _WholeStep(costs, shape, stages, groups)
    while tries + pp * (pp - 1) <= MOVES:
        found = best
        for a, b in itertools.permutations(range(pp), 2):
            layers = tuple(k - (i == a) + (i == b) for i, k in enumerate(best.layers))
            if layers[a] and layers[b] <= most[b]:
                tries += 1
                seconds = step.seconds(layers)
                if seconds < found.seconds * (1 - ROUNDED):
                    found = replace(best, seconds=seconds, layers=layers)
        if found is best:
            break
        best = found
    return None if best is one else best


class _WholeStep:
    """Closed form of the step (`sim.analytic.pipeline_step`) of the slowest replica of a placement, with messages of `_hops`,
    and at least the seconds of links that the gradients of several stages share (`planner.costs.mixed_rings`).

    groups: (microbatches, the run on each stage) of each group of equal replicas."""

    def __init__(
        self,
        costs: MixedStageCosts,
        shape: Shape,
        stages: tuple[StageSlots, ...],
        groups: list[tuple[int, tuple[Run, ...]]],
    ):
        self._costs, self._shape, self._stages, pp = costs, shape, stages, len(stages)
        self._schedule, self._rings = schedules.get(shape.schedule), costs.rings.loads(shape, stages)
        self._config = costs.config(shape, pp)
        alone = [both / 2 for both in costs.messages(shape, stages)]
        self._groups = [(m, runs, _hops(costs, shape, runs, alone), weights_owed(self._config, pp, m)) for m, runs in groups]
        self._known: dict[tuple[int, int, int], PipelineStage] = {}  # by group, stage and layers

    def seconds(self, layers: tuple[int, ...]) -> Seconds:
        """Seconds of the step with so many layers on each stage."""
        latest = 0.0
        for number, (m, _, _, owed) in enumerate(self._groups):
            pipeline = [self._stage(number, i, k) for i, k in enumerate(layers)]
            for i, one in enumerate(pipeline):
                cycle = one.cost.busy - one.cost.weight * self._schedule.SPLITS_BACKWARD
                latest = max(latest, self._rings.seconds(i, layers) + (m - 1) * cycle)
            latest = max(latest, *(end.seconds for end in stage_ends(pipeline, self._config, m, 0.0, owed)))
        return latest

    def _stage(self, number: int, i: int, layers: int) -> PipelineStage:
        """A stage of a group of replicas with so many layers."""
        if (key := (number, i, layers)) not in self._known:
            (_, runs, there, _), last = self._groups[number], len(self._stages) - 1
            device = runs[i].cluster.node.device
            cost = self._costs.cost(self._shape, self._stages[i], layers, (i == 0, i == last), device)
            ahead, back = there[i] if i < last else 0.0, there[i - 1] if i else 0.0
            sends = (0.0, 0.0, ahead) if self._schedule.OVERLAPS_SENDS else (ahead, back, 0.0)
            self._known[key] = PipelineStage(cost.sending(*sends, cost.weight), cost.forward, cost.inputs, back, back)
        return self._known[key]


def _hops(costs: MixedStageCosts, shape: Shape, runs: tuple[Run, ...], alone: list[float]) -> list[float]:
    """Estimated seconds of a message of a group's replicas over each border: all replicas of a node send at the same time."""
    nic = costs.peers.nic(runs, shape.tp)
    both = ((costs.peers.leaves(shape, a, b, nic), costs.peers.leaves(shape, b, a, nic)) for a, b in itertools.pairwise(runs))
    return [max(one, *pair) for one, pair in zip(alone, both, strict=True)]


def _shared(cycles: list[float], counts: list[int], total: int) -> list[int]:
    """Microbatches of each replica of each group, so that the last replica finishes as early as possible; empty where no such
    numbers exist.

    cycles: seconds of a microbatch on a replica of each group; counts: replicas of each group; total: microbatches in all.
    Replicas of a group have equal numbers, so each step gives one microbatch to every replica of the group that finishes
    first."""
    share = _proportional(cycles, counts, total)
    left = total - sum(count * given for count, given in zip(counts, share, strict=True))
    while left > 0:
        able = [i for i, count in enumerate(counts) if count <= left]
        if not able:
            return []
        best = min(able, key=lambda i: (share[i] + 1) * cycles[i])
        share[best] += 1
        left -= counts[best]
    return share if left == 0 else []


def _proportional(cycles: list[float], counts: list[int], total: int) -> list[int]:
    """Microbatches that a replica of each group finishes by a common time, at least 1.

    The time is so early that enough microbatches are left to give one more to each replica of any one group; else all are 1."""
    seconds = (total - 2 * max(counts)) / sum(count / cycle for count, cycle in zip(counts, cycles, strict=True))
    share = []
    for cycle in cycles:
        given = max(int(seconds / cycle) - 1, 1)
        while (given + 1) * cycle <= seconds:
            given += 1
        share.append(given)
    left = total - sum(count * given for count, given in zip(counts, share, strict=True))
    return share if left >= max(counts) else [1] * len(cycles)
