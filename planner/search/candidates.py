"""Candidates for the plan: pipelines of a shape with the step time that the evaluator gives them, or a rough estimate of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.bounds.greedy_filling import Pipeline
from planner.bounds.quick_estimate import class_sets
from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.models.class_orders import EVERY_ORDER, near_sets
from planner.search.evaluation import PipelineEvaluation, Stages, evaluated_together
from planner.search.generation import every_pipeline, promising
from planner.search.rough_estimate import rough_stage_seconds
from planner.space.shape import Shape
from sim.errors import NoRoute, NotModelled


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pipeline with the seconds of its step on an idle network, and of all its messages on the busiest link."""

    seconds: float
    link_seconds: float
    evaluation: PipelineEvaluation
    pipeline: Pipeline

    @classmethod
    def of(cls, evaluation: PipelineEvaluation, seconds: float, pipeline: Pipeline) -> Candidate:
        """The candidate of a pipeline with given seconds by the evaluator, raised to those of the busiest link."""
        link_seconds = evaluation.link_seconds(pipeline)
        return cls(max(seconds, link_seconds), link_seconds, evaluation, pipeline)

    @property
    def shape(self) -> Shape:
        """Its degrees and schedule."""
        return self.evaluation.shape

    @property
    def stages(self) -> Stages:
        """(cluster, layers) of each stage."""
        return self.evaluation.stages(self.pipeline)

    @property
    def forwards(self) -> int:
        """Forwards of one replica in a step: the work of its simulation, where that finds no steady state."""
        return self.evaluation.forwards(self.pipeline)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A pipeline with estimated seconds of its step: by the evaluator where there are few pipelines, else roughly."""

    seconds: float
    evaluation: PipelineEvaluation
    pipeline: Pipeline

    @property
    def shape(self) -> Shape:
        """Its degrees and schedule."""
        return self.evaluation.shape

    @property
    def forwards(self) -> int:
        """As those of `Candidate`."""
        return self.evaluation.forwards(self.pipeline)

    def evaluated(self) -> Candidate:
        """The candidate with the evaluator's seconds, or the estimated ones where the evaluator does not model the pipeline."""
        return all_evaluated([self])[0]


def all_evaluated(listed: Sequence[Estimate]) -> list[Candidate]:
    """The candidate of each estimate, with the evaluator's seconds; with the estimated ones where it does not model them.

    Pipelines of equal structure are evaluated as one batch, also those of unlike shapes."""
    try:
        seconds = evaluated_together([(one.evaluation, one.pipeline) for one in listed])
    except NotModelled:
        if len(listed) > 1:
            return [candidate for one in listed for candidate in all_evaluated([one])]
        seconds = [one.seconds for one in listed]
    return [Candidate.of(one.evaluation, known, one.pipeline) for one, known in zip(listed, seconds, strict=True)]


def estimates(
    context: PlanningContext,
    shape: Shape,
    classes: Sequence[NodeClass],
    most: int | None = None,
    by_speed: bool = False,
    near: bool = False,
    waits: bool = False,
) -> list[Estimate]:
    """Pipelines of a shape over sets of its classes (`class_sets`), the fastest first; empty where nothing fits.

    `near`: of many classes, also over those that are near each other (`class_orders.near_sets`).
    `by_speed`: many classes are ordered by their speed along the pipeline, not by the cheapest borders (`promising`).
    `waits`: stages that wait for messages between nodes have fewer layers (`generation.assigned_layers`); unless `by_speed`,
    without sets of which all pipelines are listed, for waits change none of these.
    With `most`, only so many of them: the seconds of the busiest link, which are slow to compute, are left out for others."""
    idle: list[Estimate] = []
    sets = [*class_sets(classes), *(near_sets(context, classes) if near and len(classes) > EVERY_ORDER else ())]
    for some in dict.fromkeys(sets):
        try:
            evaluation = PipelineEvaluation(context, shape, some)
        except NoRoute:
            continue  # nothing joins these classes
        idle += _estimated(evaluation, by_speed, waits)
    fastest: list[Estimate] = []
    for estimate in sorted(idle, key=lambda estimate: estimate.seconds):
        if most is not None and len(fastest) >= most and (not fastest or estimate.seconds >= fastest[-1].seconds):
            break
        seconds = max(estimate.seconds, estimate.evaluation.link_seconds(estimate.pipeline))
        fastest.append(replace(estimate, seconds=seconds))
        if most is not None:
            fastest = sorted(fastest, key=lambda estimate: estimate.seconds)[:most]
    return sorted(fastest, key=lambda estimate: estimate.seconds)


def _estimated(evaluation: PipelineEvaluation, by_speed: bool, waits: bool) -> Iterator[Estimate]:
    """All pipelines over these classes, evaluated, where they are few; else promising ones, roughly estimated.

    Seconds are without those of the busiest link."""
    few = every_pipeline(evaluation)
    if few is not None and waits and not by_speed:
        return
    if few is None:
        for pipeline in dict.fromkeys(promising(evaluation, by_speed, waits)):
            yield Estimate(rough_stage_seconds(evaluation, pipeline), evaluation, pipeline)
        return
    try:
        evaluated = evaluation.evaluated(few)
    except NotModelled:
        evaluated = [(rough_stage_seconds(evaluation, pipeline), pipeline) for pipeline in few]
    for seconds, pipeline in evaluated:
        yield Estimate(seconds, evaluation, pipeline)


def priced(
    context: PlanningContext, shape: Shape, classes: tuple[NodeClass, ...], pipelines: Sequence[Pipeline], most: int,
    least: bool = False,
) -> list[Candidate]:  # fmt: skip
    """The `most` fastest candidates of given pipelines of a shape over classes, the fastest first; where `most` is above 1,
    then the fastest of every other number of stages, which may suffer less from messages that share links.

    The first one is a minimum, which a bound may use if `least` or if dp divides the batch (`PipelineEvaluation`): the
    evaluator's seconds of a pipeline are raised to those of its busiest link before the fastest are chosen. Raises NotModelled
    for what the evaluator does not model, NoRoute where nothing joins the classes."""
    evaluation = PipelineEvaluation(context, shape, classes, least)
    return fastest(evaluation, evaluation.evaluated(pipelines), most)


def fastest(evaluation: PipelineEvaluation, evaluated: Sequence[tuple[float, Pipeline]], most: int) -> list[Candidate]:
    """As `priced`, of pipelines whose seconds are evaluated, the least first."""
    fastest: list[Candidate] = []
    for seconds, pipeline in evaluated:
        if len(fastest) == most and seconds >= fastest[-1].seconds:
            break
        found = [*fastest, Candidate.of(evaluation, seconds, pipeline)]
        fastest = sorted(found, key=lambda candidate: candidate.seconds)[:most]
    if most == 1:
        return fastest
    by_length: dict[int, tuple[float, Pipeline]] = {}
    for seconds, pipeline in evaluated:
        by_length.setdefault(len(pipeline), (seconds, pipeline))
    others = by_length.keys() - {len(candidate.pipeline) for candidate in fastest}
    return fastest + [Candidate.of(evaluation, *by_length[length]) for length in sorted(others)]


def too_large(
    context: PlanningContext, shape: Shape, classes: tuple[NodeClass, ...], pipelines: Sequence[Pipeline]
) -> list[Pipeline]:
    """The given pipelines of a shape over classes that do not fit memory, or only if layers are recomputed where the shape
    leaves this to the stages. Raises NoRoute where nothing joins the classes."""
    evaluation = PipelineEvaluation(context, shape, classes)
    capacities: dict[tuple[int, ...], list[int]] = {}
    result = []
    for pipeline in pipelines:
        key = tuple(i for i, _ in pipeline)
        if key not in capacities:
            capacities[key] = evaluation.layer_capacity(key, kept=True)
        if any(layers > capacity for (_, layers), capacity in zip(pipeline, capacities[key], strict=True)):
            result.append(pipeline)
    return result
