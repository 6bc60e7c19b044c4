"""A rank of a launch in its plan: which pipeline it is in, and what of the model and the batch belongs to other pipelines."""

from __future__ import annotations

from dataclasses import dataclass

from holmes_sim.torch_backend.slices import Grid
from sim.engine.rank_plans import RankPlans
from sim.kernels.gradient_buckets import Buckets, buckets_of_stage
from sim.plan.groups import GRADIENT_KINDS
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.sections import Section


@dataclass(frozen=True, slots=True)
class RankInPlan:
    """A rank: its plan, which is that of its pipeline where pipelines are unlike, and its number there.

    first: the number of the pipeline's first rank in the launch. sections: those of its stage; none where pipelines are alike.
    dp_cp_before, edp_before, samples_before: the sum of dp x cp of the pipelines before its own, that of edp, and their samples
    of a batch. tokens: of a batch of all pipelines."""

    plan: Plan
    rank: int
    first: int
    sections: tuple[Section, ...]
    dp_cp_before: int
    edp_before: int
    samples_before: int
    tokens: int

    @classmethod
    def of(cls, whole: Plan | PipelinesPlan, rank: int) -> RankInPlan:
        """The rank of a launch of a plan."""
        plans = RankPlans(whole)
        index, (plan, own) = plans.pipeline_of(rank), plans.of(rank)
        earlier = plans.plans[:index]
        return cls(
            plan,
            own,
            plans.firsts[index],
            plans.sections_of(index, plan.config.coordinates(own)[2]),
            sum(one.config.dp_cp for one in earlier),
            sum(one.config.edp for one in earlier),
            sum(one.workload.global_batch_size for one in earlier),
            whole.workload.tokens,
        )

    def groups_of(self, kind: str, section: int) -> tuple[str, ...]:
        """Names of the rank's groups of a kind (`holmes_sim.torch_backend.groups.build`) that reduce gradients of a section:
        one, or in unlike pipelines one for each slice of the section's weights that the rank has."""
        if kind not in GRADIENT_KINDS or not self.sections:
            return (kind,)
        before = 0
        for one in self.sections:
            past = before + self._grid(kind, one).number
            if one.number == section:
                return tuple(f"{kind} {number}" if number else kind for number in range(before, past))
            before = past
        raise KeyError(f"section {section} is not on rank {self.rank}")

    def grids_of(self, section: int) -> dict[str, Grid]:
        """Kind of gradient group -> the slices that the rank has of these weights of a section."""
        return {kind: self._grid(kind, one) for one in self.sections if one.number == section for kind in GRADIENT_KINDS}

    def _grid(self, kind: str, section: Section) -> Grid:
        config = self.plan.config.of_pp_rank(self.plan.config.coordinates(self.rank)[2])
        if kind == "dp":
            return Grid(1, section.slices // config.tp)
        return Grid(section.expert_parts // config.ep, section.expert_slices // config.expert_tp)

    def shapes(self, stage: int) -> tuple[tuple[int, bool, bool], ...]:
        """(layers, whether with the embedding, whether with the head) of each section of a stage, or of the whole stage."""
        if self.sections:
            return tuple((one.layers, one.embedding, one.head) for one in self.sections)
        return ((self.plan.stages[stage].layers, *self.plan.ends((stage,))),)

    def buckets(self, stage: int) -> tuple[Buckets, ...]:
        """The gradient buckets of each section of a stage, or of the whole stage."""
        return buckets_of_stage(self.plan, stage, self.sections)
