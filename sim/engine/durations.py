"""Durations of the compute actions of a program on each rank: the seconds of the closed forms, divided among the actions.

The passes that compress and decompress messages are part of F and B (`sim.kernels.messages`). Stragglers and jitter
(`sim.engine.faults`) change them here. Where measured seconds include the collectives of a
tensor-parallel group, the group computes as one: as slow as its slowest device, with one jitter."""

from __future__ import annotations

from collections.abc import Iterator

from sim.analytic import stage_amounts, stage_costs
from sim.engine.faults import NO_FAULTS, DrawnFaults
from sim.engine.rank_plans import RankPlans
from sim.kernels import beside, compute
from sim.kernels.launches import message_seconds
from sim.kernels.messages import Messages, handling_seconds
from sim.plan import schedules
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.program import BESIDE, COMPUTE, Action
from sim.units import Seconds


class Durations:
    """Compute seconds of a plan's ranks, each computed once."""

    def __init__(self, plan: Plan | PipelinesPlan, drawn: DrawnFaults = NO_FAULTS):
        self.plan, self.plans, self.drawn = plan, RankPlans(plan), drawn
        self._placement = plan.placement
        self._seconds: dict[tuple[int, str, str, int], Seconds] = {}
        self._measured: dict[int, bool] = {}
        self._messages = {one: Messages(each) for one, each in enumerate(self.plans.plans)}
        self._jitters: dict[int, Iterator[float]] = {}

    def of(self, rank: int, action: Action) -> Seconds:
        """Seconds of F, B, W, the optimizer, or what is computed beside an exchange; of one part where it is cut at buckets.

        With jitter, each call draws the factor of the rank's next action, so calls must follow the order of its program."""
        key = rank, action.kind, action.operation, action.stage
        if key not in self._seconds:
            self._seconds[key] = self._whole(rank, action) * self._slowdown(rank)
        seconds = self._seconds[key] / action.parts * (action.times if action.kind in COMPUTE else 1)
        return seconds * self._jitter(rank) if self.drawn.jitter else seconds

    def of_message(self, rank: int, action: Action) -> Seconds:
        """Seconds for which a rank's device waits while its host calls what a message that it sends or receives needs."""
        config, device = self.plans.of(rank)[0].config, self.plan.fleet.spec(self._placement[rank])
        if schedules.get(config.schedule).OVERLAPS_SENDS:
            return 0.0
        return message_seconds(device, action.operation, action.kind == "recv") * self._slowdown(rank)

    def _slowdown(self, rank: int) -> float:
        if not self.drawn.slow:
            return 1.0
        ranks = self._group(rank) if self._includes_collectives(rank) else (rank,)
        return max(self.drawn.slowdown(self._placement[member]) for member in ranks)

    def _jitter(self, rank: int) -> float:
        if rank not in self._jitters:
            first = self._group(rank)[0] if self._includes_collectives(rank) else rank
            self._jitters[rank] = self.drawn.jitter_factors(self._placement[first])
        return next(self._jitters[rank])

    def _group(self, rank: int) -> range:
        """Ranks of the tensor-parallel group of a rank."""
        (plan, _), (tp, _, pp_rank) = self.plans.of(rank), self.plans.coordinates(rank)
        return range(rank - tp, rank - tp + plan.config.tp_of(pp_rank))

    def _whole(self, rank: int, action: Action) -> Seconds:
        (plan, _), device = self.plans.of(rank), self.plan.fleet.spec(self._placement[rank])
        if action.kind == "optimizer":
            stages = plan.stages_of(self.plans.coordinates(rank)[2])
            workload = plan.workload_of(stages)
            layers = sum(plan.stages[stage].layers for stage in stages)
            config = plan.config_of(stages)
            return stage_amounts.optimizer_seconds(device, workload, config, layers, *plan.ends(stages))
        layers, config = plan.stages[action.stage].layers, plan.config_of((action.stage,))
        workload = plan.workload_of((action.stage,))
        windows = beside.windows(device, workload, config, layers)
        if action.kind in BESIDE:
            return windows[action.operation]
        first, last = plan.ends((action.stage,))
        weight = stage_amounts.weight_seconds(device, workload, config, layers, last)
        if action.kind == "W":
            return weight
        forward, backward = stage_costs.compute_seconds(device, workload, config, layers, first, last)
        traffic = stage_amounts.traffic_seconds(device, workload, config, layers, first, last)[action.kind == "B"]
        hidden = {one.operation for one in beside.exchanges(workload, config, layers, action.kind == "B")}
        messages = self._messages[self.plans.pipeline_of(rank)]
        handling = handling_seconds(messages.passes((action.stage,))[action.kind == "B"], device)
        computed = (forward if action.kind == "F" else backward - weight) - sum(windows[way] for way in hidden)
        return computed + traffic + handling

    def include(self, rank: int, action: Action) -> bool:
        """Whether the measured compute seconds of all devices of its group include this collective."""
        gathers_message = action.operation == "all_gather" and not self.plans.of(rank)[0].config.sequence_parallel
        if action.group != "tp" or gathers_message:
            return False
        return self._includes_collectives(rank)

    def _includes_collectives(self, rank: int) -> bool:
        if rank not in self._measured:
            specs = {self.plan.fleet.spec(self._placement[member]) for member in self._group(rank)}
            plan, _ = self.plans.of(rank)
            workload, config = plan.workload, plan.config_of((self.plans.coordinates(rank)[2],))
            self._measured[rank] = all(compute.includes_collectives(spec, workload, config) for spec in specs)
        return self._measured[rank]
