"""What the stages of a plan recompute where modules of layers may be chosen: that which takes least time of what fits memory.

A stage recomputes nothing, modules of all its layers (`planner.space.tried_modules.CHOICES`), or as few whole layers as fit.
Seconds are those of `sim.analytic.stage_costs`, bytes those of `sim.kernels.memory`."""

from __future__ import annotations

import bisect
import math
from dataclasses import replace

from planner.placement.ranks import stages_of
from planner.placement.recomputation import room_of
from planner.space.tried_modules import CHOICES
from sim.analytic.equal_replicas import replica_classes
from sim.analytic.plan_costs import PlanCosts
from sim.kernels import memory
from sim.plan.parallel_config import RECOMPUTE, ParallelConfig
from sim.plan.plan import Plan
from sim.plan.recomputation import kind_and_modules
from sim.units import Seconds


class ModuleChoices:
    """The recomputation of the stages of a plan, without virtual stages, for any split of its equal layers."""

    def __init__(self, plan: Plan):
        self.plan = replace(plan, config=plan.config.recomputing("none"), prediction=None, certificate=None)
        self._costs, self._replicas, self._room = PlanCosts(self.plan), replica_classes(self.plan)[0], room_of(self.plan)
        self._known: dict[tuple[int, int], tuple[str, int] | None] = {}

    def plan_with(self, layers: tuple[int, ...]) -> Plan | None:
        """The plan with these layers in which each stage recomputes what takes it least; None where some stage does not fit."""
        found = [self._least(pp_rank, many) for pp_rank, many in enumerate(layers)]
        every = [one for one in found if one is not None]
        return self._with(layers, *zip(*every, strict=True)) if len(every) == len(layers) else None

    def _with(self, layers: tuple[int, ...], kinds: tuple[str, ...], counts: tuple[int, ...]) -> Plan:
        config, names = self.plan.config, {kind_and_modules(kind)[0] for kind in kinds}
        most = max(names, key=RECOMPUTE.index)
        if len(set(kinds)) == 1:
            config = replace(config, recompute=most, recompute_modules=kind_and_modules(kinds[0])[1])
        elif names != {"none", "full"}:
            config = replace(config, recompute=most, stage_recompute=kinds)
        if most == "full":
            config = replace(config, recompute="full", recompute_layers=counts)
        return replace(self.plan, config=config, stages=stages_of(layers, config))

    def _least(self, pp_rank: int, layers: int) -> tuple[str, int] | None:
        """(kind, number of whole layers) of what takes a stage least; None where nothing fits."""
        if (pp_rank, layers) not in self._known:
            options = [(choice, 0) for choice in ("none", *CHOICES)] + [("full", self._fewest(pp_rank, layers))]
            priced = [(self._seconds(pp_rank, layers, *one), one) for one in options]
            seconds, best = min(priced, key=lambda one: one[0])
            self._known[pp_rank, layers] = best if seconds < math.inf else None
        return self._known[pp_rank, layers]

    def _fewest(self, pp_rank: int, layers: int) -> int:
        """Fewest whole layers that make a stage fit, at least one; all where it does not."""
        some = range(1, max(layers, 1))
        return (
            bisect.bisect_left(some, True, key=lambda many: self._fits(pp_rank, layers, self._own(pp_rank, "full", many))) + 1
        )

    def _seconds(self, pp_rank: int, layers: int, kind: str, count: int) -> Seconds:
        """Forward and backward of a microbatch; infinite where the stage does not fit."""
        own = self._own(pp_rank, kind, count)
        if not self._fits(pp_rank, layers, own):
            return math.inf
        stages = self.plan.stages_of(pp_rank)
        costs = replace(self._costs.at(pp_rank, self._replicas, stages), config=own)
        return sum(costs.passes(layers, *self.plan.ends(stages), self._costs.specs(pp_rank, self._replicas)))

    def _own(self, pp_rank: int, kind: str, count: int = 0) -> ParallelConfig:
        name, modules = kind_and_modules(kind)
        counts = (count,) if name == "full" else ()
        return replace(self.plan.config.of_pp_rank(pp_rank), recompute=name, recompute_modules=modules, recompute_layers=counts)

    def _fits(self, pp_rank: int, layers: int, config: ParallelConfig) -> bool:
        ends, room = self.plan.ends(self.plan.stages_of(pp_rank)), self._room[pp_rank]
        pairs = memory.in_flight(self.plan, pp_rank)
        return all(
            memory.rank_bytes(self.plan.workload, config, layers, held, *ends, deferred) <= room for held, deferred in pairs
        )
