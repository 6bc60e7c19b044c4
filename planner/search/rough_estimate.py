"""A rough step time of a pipeline: the closed form of `sim.analytic.pipeline_step`, with the least costs of each stage.

Messages are those between the devices that the stages will have. The estimate needs no table of the evaluator, and it names
the bottleneck: the stage that implies the latest end of the step.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.bounds.greedy_filling import Pipeline
from planner.search.evaluation import PipelineEvaluation, roles
from sim.analytic.pipeline_step import PipelineStage, StageEnd, stage_ends, weights_owed
from sim.units import time_text

NAMED_MESSAGES = 0.05
"""The text of a bottleneck mentions the stage's messages where they take more than this fraction of its cycle (a guess)."""


def rough_seconds(evaluation: PipelineEvaluation, pipeline: Pipeline) -> float:
    """The end of the step that the bottleneck implies, or the seconds of all messages on the busiest link if they are more."""
    return max(evaluation.link_seconds(pipeline), rough_stage_seconds(evaluation, pipeline))


def rough_stage_seconds(evaluation: PipelineEvaluation, pipeline: Pipeline) -> float:
    """The end of the step that the bottleneck stage implies, without the seconds of all messages on the busiest link."""
    return max(end.seconds for end in _ends(evaluation, pipeline)[0])


def bottleneck(evaluation: PipelineEvaluation, pipeline: Pipeline) -> str:
    """What the bottleneck stage does in a step, as text; the busiest link where its messages take longer."""
    latest, words = max(_stages(evaluation, pipeline), key=lambda stage: stage[0])
    link = evaluation.link_seconds(pipeline)
    return f"messages of the step on the busiest link: {_text(link)}" if link > latest else words


def _ends(evaluation: PipelineEvaluation, pipeline: Pipeline) -> tuple[list[StageEnd], list[PipelineStage]]:
    """(earliest end of the step that a stage implies, costs of the stage) of all stages."""
    m, pp = evaluation.microbatches, len(pipeline)
    ahead_of, back_of, tied = evaluation.messages(tuple(i for i, _ in pipeline))
    stages, fewest = [], evaluation.fewest([i for i, _ in pipeline])
    for stage, ((i, layers), role) in enumerate(zip(pipeline, roles(pp), strict=True)):
        option = evaluation.classes[i]
        arrives = ahead_of[stage - 1] if stage else 0.0
        returns, ahead = back_of[stage], ahead_of[stage] if stage + 1 < pp else 0.0
        cost = option.with_messages(role, layers, ahead, returns, fewest[stage][layers])
        stages.append(PipelineStage(cost, *option.entry(role, layers), arrives, returns))
    owed = weights_owed(evaluation.config, pp, m)
    return list(stage_ends(stages, evaluation.config, m, max(tied, 0.0), owed)), stages


def _stages(evaluation: PipelineEvaluation, pipeline: Pipeline) -> Iterator[tuple[float, str]]:
    """(earliest end of the step that a stage implies, what the stage does until then) of each stage."""
    m, (ends, stages) = evaluation.microbatches, _ends(evaluation, pipeline)
    for stage, (end, (i, layers), held) in enumerate(zip(ends, pipeline, stages, strict=True)):
        waits = held.cost.send_forward + held.cost.send_backward
        included = " with messages" if waits > NAMED_MESSAGES * held.cost.cycle else ""
        yield (
            end.seconds,
            f"stage {stage} ({layers} {'layer' if layers == 1 else 'layers'} on {evaluation.classes[i].cluster.name}): "
            f"begins at {_text(end.begin)}, "
            f"{m} microbatches of {_text(held.cost.cycle)}{included}, {_text(end.after)} after the last",
        )


def _text(seconds: float) -> str:
    return time_text(float(f"{seconds:.3g}"))
