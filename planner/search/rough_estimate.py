"""A rough step time of a pipeline: the maximum over its stages of when the step ends if that stage is the bottleneck.

Costs of stages are those of `sim.analytic.stage_costs`; messages are those between the devices that the stages will have. It
needs no table of the evaluator, and it names the bottleneck.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.bounds.greedy_filling import Pipeline
from planner.search.evaluation import PipelineEvaluation, roles
from sim.units import time_text

NAMED_MESSAGES = 0.05
"""Messages are named among what a stage waits for where they take more than this fraction of its microbatch (a guess)."""


def rough_seconds(evaluation: PipelineEvaluation, pipeline: Pipeline) -> float:
    """The step time of the bottleneck stage, or that of all messages on the busiest link where it is larger."""
    return max(evaluation.link_seconds(pipeline), max(seconds for seconds, _ in _stages(evaluation, pipeline)))


def bottleneck(evaluation: PipelineEvaluation, pipeline: Pipeline) -> str:
    """What the bottleneck stage does in a step, as text; the busiest link where its messages take longer."""
    latest, words = max(_stages(evaluation, pipeline), key=lambda stage: stage[0])
    link = evaluation.link_seconds(pipeline)
    return f"messages of the step on the fullest link: {_text(link)}" if link > latest else words


def _stages(evaluation: PipelineEvaluation, pipeline: Pipeline) -> Iterator[tuple[float, str]]:
    """(step time if this stage is the bottleneck, what it does until then) of each stage.

    A stage begins when the forward of the first microbatch arrives (or its weights are gathered), computes its microbatches
    without a pause, and ends with its own tail; or the last gradient travels back to the first stage, whose tail follows."""
    m, stage_roles = evaluation.microbatches, roles(len(pipeline))
    ahead_of, back_of, tied_sum = evaluation.messages(tuple(i for i, _ in pipeline))
    fill = drain = first_tail = 0.0
    tied = max(tied_sum, 0.0)
    for stage, (i, layers) in enumerate(pipeline):
        option = evaluation.classes[i]
        cost, entry = option.cost(stage_roles[stage], layers), option.entry(stage_roles[stage], layers)
        back, ahead = back_of[stage], ahead_of[stage] if stage + 1 < len(pipeline) else 0.0
        fill, drain = fill + back, drain + back
        if option.waits:
            cost = replace(cost, send_forward=ahead, send_backward=back)
        else:
            cost = replace(cost, lane=ahead * evaluation.shape.vpp)
        if not stage:
            first_tail = cost.tail(option.plain, tied)
        tail = cost.tail(option.plain, tied if stage in (0, len(pipeline) - 1) else 0.0)
        after = max(tail, drain + first_tail - m * cost.weight if stage else 0.0)
        begin = cost.begin(fill, option.plain)
        included = " messages included" if option.waits and ahead + back > NAMED_MESSAGES * cost.slot else ""
        yield (
            begin + m * cost.slot + after,
            f"stage {stage} ({layers} layers on {option.cluster.name}): {_text(begin)} until work comes, "
            f"{m} x {_text(cost.slot)}{included}, {_text(after)} behind the last",
        )
        fill, drain = fill + entry[0], drain + entry[1]


def _text(seconds: float) -> str:
    return time_text(float(f"{seconds:.3g}"))
