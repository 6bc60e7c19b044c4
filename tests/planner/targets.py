"""A target for tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.certificates.unlike import ALIKE
from planner.target import Target
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload


def only_1f1b(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Other schedules, ZeRO 2 and 3 in a pipeline, ZeRO 1 on one stage, and unlike replicas."""
    if config.schedule != "1f1b":
        yield f"schedule {config.schedule}: 1f1b"
    if config.zero_stage != (1 if config.pp > 1 else 3) and config.dp > 1:
        yield f"zero_stage {config.zero_stage} with pp {config.pp}"
    if len(set(config.num_microbatches)) > 1:
        yield "num_microbatches: alike"


def _nothing(plan: Plan) -> Iterator[str]:
    yield from ()


def alike_replicas() -> Target:
    """A target that runs everything but replicas with unlike numbers of microbatches."""
    return ALIKE


def at_most_two_stages(plan: Plan) -> Iterator[str]:
    """Pipelines of three stages and more."""
    if plan.config.pp > 2:
        yield f"pp {plan.config.pp}: at most 2"


def target(**changes: Any) -> Target:
    """A target with 1F1B, ZeRO by the number of stages, and two stages at most."""
    facts = {"vendors": "any", "excluded_vendors": ()} | changes
    return Target("strict", unsupported_layout=only_1f1b, unsupported_placement=at_most_two_stages, **facts)
