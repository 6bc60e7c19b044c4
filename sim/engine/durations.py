"""How long the compute actions of a program take on each rank: the closed forms' seconds, cut as the engine plays them.

Slow devices and jitter (`sim.engine.faults`) change them here. Where measured seconds hold the collectives of a tensor-parallel
group, they are one thing for the group: as slow as its slowest device, with one jitter."""

from __future__ import annotations

from collections.abc import Iterator

from sim.analytic import stage_costs
from sim.engine.faults import NOTHING, Drawn
from sim.kernels import compute, lowering
from sim.plan.plan import Plan
from sim.plan.program import Action
from sim.units import Seconds


class Durations:
    """Seconds of the compute of a plan's ranks, each looked up once."""

    def __init__(self, plan: Plan, drawn: Drawn = NOTHING):
        self.plan, self.config, self.drawn = plan, plan.config, drawn
        self._seconds: dict[tuple[int, str, str, int], Seconds] = {}
        self._measured: dict[int, bool] = {}
        self._jitters: dict[int, Iterator[float]] = {}

    def of(self, rank: int, action: Action) -> Seconds:
        """Seconds of F, B, W, the optimizer, or the attention beside a ring ("ring"); of one part where it is cut.

        With jitter the next of a rank's actions, in the order in which it does them."""
        key = rank, action.kind, action.operation, action.stage
        if key not in self._seconds:
            self._seconds[key] = self._whole(rank, action) * self._slow(rank)
        seconds = self._seconds[key] / action.parts
        return seconds * self._jitter(rank) if self.drawn.jitter else seconds

    def _slow(self, rank: int) -> float:
        if not self.drawn.slow:
            return 1.0
        together = self._group(rank) if self._holds_collectives(rank) else (rank,)
        return max(self.drawn.slows(self.plan.placement[member]) for member in together)

    def _jitter(self, rank: int) -> float:
        if rank not in self._jitters:
            first = self._group(rank)[0] if self._holds_collectives(rank) else rank
            self._jitters[rank] = self.drawn.stream(self.plan.placement[first])
        return next(self._jitters[rank])

    def _group(self, rank: int) -> range:
        """The ranks of its tensor-parallel group."""
        first = rank - rank % self.config.tp
        return range(first, first + self.config.tp)

    def _whole(self, rank: int, action: Action) -> Seconds:
        device, workload, config = self.plan.fleet.spec(self.plan.placement[rank]), self.plan.workload, self.config
        last_stage = config.num_stages - 1
        if action.kind == "optimizer":
            stages = self.plan.stages_of(config.place(rank)[2])
            layers = sum(self.plan.stages[stage].layers for stage in stages)
            return stage_costs.optimizer_seconds(device, workload, config, layers, 0 in stages, last_stage in stages)
        layers = self.plan.stages[action.stage].layers
        rings = stage_costs.ring_windows(device, workload, config, layers)
        if action.kind == "ring":
            return rings[action.operation]
        last = action.stage == last_stage
        weight = stage_costs.weight_seconds(device, workload, config, layers, last)
        if action.kind == "W":
            return weight
        forward, backward = stage_costs.compute_seconds(device, workload, config, layers, action.stage == 0, last)
        apart = lowering.ring_exchanges(workload, config, layers, action.kind == "B")
        return (forward if action.kind == "F" else backward - weight) - sum(rings[way] for way, _, _ in apart)

    def include(self, rank: int, action: Action) -> bool:
        """Whether a collective is inside the measured seconds of its compute, on all devices of its group."""
        gathers_message = action.operation == "all_gather" and not self.config.sequence_parallel
        if action.group != "tp" or gathers_message:
            return False
        return self._holds_collectives(rank)

    def _holds_collectives(self, rank: int) -> bool:
        if rank not in self._measured:
            specs = {self.plan.fleet.spec(self.plan.placement[member]) for member in self._group(rank)}
            workload = self.plan.workload
            self._measured[rank] = all(compute.includes_collectives(spec, workload, self.config) for spec in specs)
        return self._measured[rank]
