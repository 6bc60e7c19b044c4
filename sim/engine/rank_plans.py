"""Rank plans: the plan that each rank follows, which is the whole plan, or that of its pipeline where pipelines are unlike."""

from __future__ import annotations

import bisect
import functools

from sim.formats import pipelinesfile, planfile
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.sections import Section


class RankPlans:
    """`plans`: the plan itself, or those of unlike pipelines, whose ranks follow one another from `firsts` on."""

    def __init__(self, plan: Plan | PipelinesPlan):
        self.plan = plan
        self.plans = plan.pipelines if isinstance(plan, PipelinesPlan) else (plan,)
        self.firsts = plan.first_ranks if isinstance(plan, PipelinesPlan) else (0,)

    def pipeline_of(self, rank: int) -> int:
        """Index of the plan of a rank."""
        return bisect.bisect_right(self.firsts, rank) - 1 if len(self.firsts) > 1 else 0

    def of(self, rank: int) -> tuple[Plan, int]:
        """The plan of a rank, and the number of the rank in it."""
        index = self.pipeline_of(rank)
        return self.plans[index], rank - self.firsts[index]

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """(tp, dp_cp, pp) indices of a rank in its plan."""
        plan, own = self.of(rank)
        return plan.config.coordinates(own)

    def stage_of(self, rank: int) -> tuple[int, int]:
        """(index of the rank's plan where pipelines are unlike, else -1; pipeline rank)."""
        return self.pipeline_of(rank) if len(self.plans) > 1 else -1, self.coordinates(rank)[2]

    def stage_number(self, rank: int) -> int:
        """The pipeline rank of a rank, counted over the plans, one after the other."""
        index = self.pipeline_of(rank)
        return sum(plan.config.pp for plan in self.plans[:index]) + self.coordinates(rank)[2]

    def program(self, rank: int) -> tuple[int, int, int]:
        """(plan, pipeline rank, microbatches) of a rank: what its program follows from."""
        plan, own = self.of(rank)
        _, dp_cp, pp_rank = plan.config.coordinates(own)
        return self.pipeline_of(rank), pp_rank, plan.config.microbatches_of(dp_cp, pp_rank)

    @functools.cached_property
    def sections(self) -> tuple[Section, ...]:
        """Sections of unlike pipelines, in order."""
        return self.plan.sections if isinstance(self.plan, PipelinesPlan) else ()

    def sections_of(self, pipeline: int, pp_rank: int) -> tuple[Section, ...]:
        """The sections of the stage of a pipeline rank; none where pipelines are alike."""
        return self.plan.sections_of(pipeline, pp_rank) if isinstance(self.plan, PipelinesPlan) else ()

    @property
    def digest(self) -> str:
        """Hash of what a simulation depends on."""
        plan = self.plan
        return pipelinesfile.digest(plan) if isinstance(plan, PipelinesPlan) else planfile.digest(plan)
