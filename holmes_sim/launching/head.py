"""The place of the head in a training framework, and stages before it that hold nothing."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.plan import Plan


def unsupported(plan: Plan) -> Iterator[str]:
    """A head before the last stage, for frameworks that build it there (Megatron-LM, DeepSpeed, torchtitan)."""
    if plan.head_stage != plan.config.num_stages - 1:
        yield f"stages[{plan.head_stage}].head: it builds the head on the last stage; a last stage with the head"


def passing(plan: Plan) -> Iterator[str]:
    """Stages that hold nothing and pass messages on, which were tried with no framework."""
    for stage in filter(plan.passes_on, range(plan.config.num_stages)):
        yield f"stages[{stage}].layers: it is empty before the head, which was not tried; a layer on each stage before the head"
