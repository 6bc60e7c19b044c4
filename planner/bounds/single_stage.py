"""Lower bounds on pipelines of one stage, which the deadline test does not cover."""

from __future__ import annotations

from planner.costs.node_classes import NodeClass
from planner.costs.stage_memory import single_stage_config
from sim.analytic.pipeline_step import PipelineStage, stage_ends
from sim.plan import schedules
from sim.units import Seconds


def single_seconds(option: NodeClass) -> Seconds:
    """Closed form of the step of a pipeline of one stage: a lower bound on the evaluator's result."""
    layers, config, recomputed = option.workload.model.layers, single_stage_config(option.config), recomputed_alone(option)
    cost = option.cost("only", layers, recomputed)
    (end,) = stage_ends((PipelineStage(cost, cost.forward, cost.inputs),), config, option.microbatches, 0.0, (0,))
    return max(end.seconds, single_bound(option, recomputed))


def recomputed_alone(option: NodeClass) -> int:
    """Fewest layers that the only stage of a pipeline recomputes, where the shape leaves this to the stages."""
    shape, layers = option.shape, option.workload.model.layers
    held = schedules.in_flight(shape.schedule, 0, 1, option.microbatches, shape.vpp)
    fewest = option.memory.fewest("only", held, 1)
    return fewest[layers] if fewest else 0


def single_bound(option: NodeClass, recomputed: int = 0) -> Seconds:
    """A lower bound on the step of a pipeline of one stage, under any schedule and under ZeRO 1, 2 and 3 (ZeRO 0 if pinned).

    The virtual stages of a microbatch run one after the other. So at most the first microbatch's forward hides gathers ahead
    of the forwards, and at most the last microbatch's backward hides reductions. ZeRO 2 and 3 reduce at least as much as
    `NodeClass.least_reduce` and gather at least as much as ZeRO 1. recomputed: layers that the stage recomputes at least."""
    config, layers = option.config, option.workload.model.layers
    cost = option.cost("only", layers, recomputed)
    reduce = option.least_reduce("only", layers, cost.reduce)
    gathers = max(cost.gather - cost.forward, 0.0) if config.gathers_ahead else cost.gather
    reductions = max(reduce - cost.backward, 0.0) if config.reduces_behind else reduce
    return gathers + option.microbatches * cost.both + reductions + cost.optimizer
