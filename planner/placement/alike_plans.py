"""Plans that differ only in the layers of their stages, each simulated in milliseconds (`sim.engine.step_times`).

What a rank does follows from its own stage: its layers, how many of them it recomputes, and the collectives that are fastest
for it. So a plan is built for each number of layers of each stage, and the programs of its ranks serve all plans with such a
stage. What stages recompute may depend on others, because frameworks have one number for all stages; so where a stage must
recompute some layers, each plan is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from sim.engine.compiled import Compiler, Program
from sim.engine.step_times import StepTimes
from sim.engine.symmetry import fold
from sim.errors import NotModelled
from sim.plan.groups import Group
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import Seconds

Stage = tuple[int, int, tuple[object, ...]]
"""A pipeline rank, its layers, and what its stages recompute."""
Chosen = tuple[str, ...]
"""The collectives of all groups."""
BUILT = 1_000
"""Operations that take as long as building a plan of few ranks does (a guess)."""
RANK = 10
"""The same for each rank of it (a guess)."""


class AlikePlans:
    """Steps of plans with some layers on each pipeline rank; `build` makes such a plan. chooses: stages recompute layers as
    memory requires."""

    def __init__(self, build: Callable[[tuple[int, ...]], Plan], chooses: bool):
        self._build, self._chooses = build, chooses
        self._first: Plan | None = None
        self._own: list[list[int]] = []  # the groups of each pipeline rank
        self._stages: dict[tuple[int, int], Stage] = {}  # those that need no recomputation, by pipeline rank and layers
        self._plans: dict[Stage, Plan] = {}
        self._steps: dict[Chosen, StepTimes] = {}
        self._programs: dict[tuple[Chosen, Stage], dict[int, Program]] = {}
        self.work = 0
        """Operations compiled and walked, and events simulated, with those of each plan built: a million take a few seconds."""

    def seconds(self, layers: tuple[int, ...], limit: Seconds = math.inf) -> Seconds:
        """Seconds of a step, infinite where they are above `limit`. Raises NotModelled; NoRoute and NotDefined as `build`."""
        known = [self._stages.get(stage) for stage in enumerate(layers)]
        stages = [stage for stage in known if stage is not None]
        if len(stages) < len(layers):
            plan = self._build(layers)
            self.work += BUILT + RANK * plan.config.world_size
            stages = self._learned(plan, layers)
        groups = self._groups(stages)
        chosen = tuple(group.collective for group in groups)
        if chosen not in self._steps:
            assert self._first is not None
            self._steps[chosen] = StepTimes(Compiler(fold(self._first.annotated(groups=groups))))
        steps, found = self._steps[chosen], dict[int, Program]()
        for stage in stages:
            if (chosen, stage) not in self._programs:
                compiled = self._programs[chosen, stage] = steps.compiler.programs(self._plans[stage], stage[0])
                self.work += 2 * sum(map(len, compiled.values()))
            found |= self._programs[chosen, stage]
        before, programs = steps.events, [found[index] for index in range(len(found))]
        seconds = steps.seconds(programs, limit)
        self.work += steps.events - before + sum(map(len, programs)) // 4
        return seconds

    def _learned(self, plan: Plan, layers: tuple[int, ...]) -> list[Stage]:
        """The stages of a plan; those that need no recomputation are remembered for others."""
        if self._first is None:
            self._first = plan
            self._own = [[] for _ in layers]
            for index, group in enumerate(plan.groups):
                if group.kind != "pp":
                    self._own[plan.config.coordinates(group.ranks[0])[2]].append(index)
        if _but_recomputation(plan.config) != _but_recomputation(self._first.config) or plan.layers != layers:
            raise NotModelled("these plans differ in more than the layers of their stages")
        found, is_free = list[Stage](), not self._chooses or plan.config.recompute == "none"
        for pp_rank, count in enumerate(layers):
            every = (plan.config_of((one,)) for one in plan.stages_of(pp_rank))
            stage = pp_rank, count, tuple((one.recompute, one.recompute_layers) for one in every)
            self._plans.setdefault(stage, plan)
            if is_free:
                self._stages[pp_rank, count] = stage
            found.append(stage)
        return found

    def _groups(self, stages: list[Stage]) -> tuple[Group, ...]:
        """The groups of a plan, with the collectives of its stages."""
        assert self._first is not None
        groups = list(self._first.groups)
        for stage in stages:
            for index in self._own[stage[0]]:
                groups[index] = self._plans[stage].groups[index]
        return tuple(groups)


def _but_recomputation(config: ParallelConfig) -> ParallelConfig:
    return replace(config, recompute="none", recompute_layers=())
