"""A plan with the explanation of its step, verdicts on other layouts, and what each requirement costs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import ExplanationDocument
from sim.formats.fields import StrictModel
from sim.formats.planfile import PlanFacts

NAME = "explained-plan"
FORMAT = "holmes-sim/explained-plan/1"
WRITTEN_BY = ("plan TOPO --explain --json",)


class LayoutVerdict(StrictModel):
    """A layout under its best schedule, and why it is slower or does not fit."""

    tp: int = Field(description="tensor-parallel degree")
    dp: int = Field(description="data-parallel degree")
    cp: int = Field(description="context-parallel degree")
    ep: int = Field(description="expert-parallel degree")
    etp: int | None = Field(description="tensor-parallel degree of experts; null if it is tp")
    microbatch_size: int = Field(description="sequences of a microbatch")
    recompute: str
    schedule: str
    vpp: int = Field(description="number of virtual stages on a pipeline rank")
    zero_stage: int = Field(description="ZeRO stage, 0 to 3")
    zero_shard_size: int | None = Field(description="number of replicas that share the state; null if all")
    estimated_step_s: float | None = Field(description="estimated seconds of its best step; null if it does not fit memory")
    why: str = Field(description="what limits it, in words")


class RequirementCost(StrictModel):
    """What a requirement costs: compare `step_without_it_s` with the step of the plan."""

    requirement: str = Field(description="the requirement in words, such as `tp at most 4`")
    step_without_it_s: float | None = Field(description="seconds of the best step found without it; null if unknown")
    lower_bound_without_it_s: float | None = Field(description="no searched plan without it takes less; null if unknown")
    reason_if_none: str | None = Field(description="why the step is unknown")


class ExplainedPlan(StrictModel):
    """A plan and its explanation. Among the verdicts is the one on the layout of the plan itself."""

    format: Literal["holmes-sim/explained-plan/1"]
    plan: PlanFacts = Field(description="the plan, as in plan.json")
    explanation: ExplanationDocument
    verdicts: tuple[LayoutVerdict, ...]
    requirements: tuple[RequirementCost, ...] = Field(description="empty unless the topology or --require has any")


MODEL = ExplainedPlan
