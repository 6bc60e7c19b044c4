"""The place of the head in a training framework."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.plan import Plan


def unsupported(plan: Plan) -> Iterator[str]:
    """A head before the last stage, for frameworks that build it there (Megatron-LM, DeepSpeed, torchtitan)."""
    if plan.head_stage != plan.config.num_stages - 1:
        yield f"stages[{plan.head_stage}].head: it builds the head on the last stage; a last stage with the head"
