"""Step times of pipelines of one shape over one set of node classes, on an idle network.

Seconds are those of `sim.analytic.evaluator`, with the messages and nodes of the placement that `planner.placement.ranks.build`
makes, and not below the bound of gradients that share links. The simulation adds contention between messages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias

import numpy as np

from planner.bounds.greedy_filling import Pipeline
from planner.costs.busy_links import BusyLink, busy_links, least_steps
from planner.costs.context import PlanningContext
from planner.costs.node_classes import Memory, NodeClass
from planner.costs.stage_positions import End
from planner.placement.ranks import virtual_stages
from planner.placement.recomputation import virtual_recomputed
from planner.space.shape import Shape
from sim.analytic.candidates import PIPELINE_RANK, STAGE, UNTIED, Candidates, Floats, join
from sim.analytic.evaluator import Ints, Table
from sim.analytic.recurrence import ROWS, steps_and_reductions
from sim.hardware.cluster import Cluster
from sim.plan import schedules
from sim.plan.parallel_config import BLOCK
from sim.units import Seconds

NOTABLE = 0.3
"""Fraction of the least step on an idle network from which the messages of a link may make it longer (a guess): with few
microbatches, filling and draining take most of it."""
Stages: TypeAlias = tuple[tuple[str, int], ...]
"""(cluster, layers) of each stage of a pipeline."""


class PipelineEvaluation:
    """Evaluates pipelines of a shape; a `Pipeline` holds indices into `classes`. Raises NoRoute where nothing joins them.

    least: seconds are lower bounds also where dp does not divide the batch; else replicas are assumed to keep step."""

    def __init__(self, context: PlanningContext, shape: Shape, classes: tuple[NodeClass, ...], least: bool = False):
        self.context, self.shape, self.classes = context, shape, classes
        self.layers = context.request.workload.model.layers
        self.config = classes[0].config
        self.microbatches = shape.microbatches(context.request.workload)
        clusters = tuple(option.cluster for option in classes)
        self._nic, self._together = context.fleets.nic_of(clusters), context.messages.together(clusters, shape, least)
        self._messages: dict[tuple[int, ...], tuple[list[float], list[float], float]] = {}
        self._busy: dict[tuple[int, ...], list[BusyLink]] = {}
        self._positions = [(i, position) for i, option in enumerate(classes) for position in range(len(option.costs))]
        self._table_row = {key: index for index, key in enumerate(self._positions)}
        self._tables: dict[bool, Table] = {}

    def evaluated(
        self, pipelines: Sequence[Pipeline], limit: Seconds = math.inf, gathers: bool = True
    ) -> list[tuple[float, Pipeline]]:
        """(seconds of a step, pipeline) of each pipeline, the fastest first; above `limit` they may be a lower bound above it.

        gathers: where False, gathers before the forwards are left out, so that the seconds are a lower bound of the step with
        gathers at either time. Raises NotModelled."""
        result: list[tuple[float, Pipeline]] = []
        with self.context.effort.spent("pipelines priced", len(pipelines)):
            for pp in sorted({len(pipeline) for pipeline in pipelines}):
                of_length = [pipeline for pipeline in pipelines if len(pipeline) == pp]
                result += zip(self._seconds(of_length, limit, gathers), of_length, strict=True)
        return sorted(result)

    def _seconds(self, pipelines: Sequence[Pipeline], limit: Seconds, gathers: bool) -> list[float]:
        """Seconds of a step of pipelines with equally many stages, evaluated as one batch, as `evaluated`."""
        seconds: list[float] = []
        for first in range(0, len(pipelines), ROWS):
            part = pipelines[first : first + ROWS]
            candidates = self.candidates(part) if gathers else self.candidates(part).without_gathers()
            seconds += self.least(part, candidates, *steps_and_reductions(candidates, limit)).tolist()
        return seconds

    def least(self, pipelines: Sequence[Pipeline], candidates: Candidates, seconds: Floats, reductions: Floats) -> Floats:
        """Seconds of a step, not below the bound of gradients that share links (`planner.costs.gradient_loads`).

        `seconds` and `reductions` are those of the candidates on an idle network (`steps_and_reductions`)."""
        optimizer, found = candidates.pp_ranks[PIPELINE_RANK.index("updated")], seconds.copy()
        for clusters, rows, layers in self._sharing(pipelines):
            own = layers, reductions[:, rows], optimizer[:, rows]
            found[rows] = np.maximum(seconds[rows], self.context.gradients.ends(clusters, self.shape, *own))
        return self._with_messages(pipelines, candidates, found)

    def _with_messages(self, pipelines: Sequence[Pipeline], candidates: Candidates, seconds: Floats) -> Floats:
        """`seconds`, not below the bound of the busiest links (`planner.costs.busy_links`)."""
        if candidates.pp < 2:
            return seconds
        distinct, which = by_classes(pipelines)
        links = [self.busy_links_of(one) for one in distinct]
        m = self.shape.least_microbatches(self.context.request.workload)
        for index, busy in enumerate(links):
            if m * max((link.seconds for link in busy), default=0.0) > NOTABLE * seconds.min():
                rows = np.flatnonzero(which == index)
                seconds[rows] = np.maximum(seconds[rows], least_steps(candidates.some(rows), busy, m))
        return seconds

    def busy_links_of(self, classes: tuple[int, ...]) -> list[BusyLink]:
        """The busiest links of a pipeline whose stages are on these classes."""
        if classes not in self._busy:
            self._busy[classes] = busy_links(self.context.loads, self._ends(classes), self.shape, self._nic)
        return self._busy[classes]

    def _sharing(self, pipelines: Sequence[Pipeline]) -> Iterator[tuple[list[Cluster], Ints, Ints]]:
        """(cluster of each stage, indices of the pipelines on these clusters, their layers), where stages may share links."""
        if not any(self.context.gradients.shared(option.cluster, self.shape).links for option in self.classes):
            return
        distinct, which = by_classes(pipelines)
        layers: Ints = np.array(pipelines)[:, :, 1]
        for index, numbers in enumerate(distinct):
            rows = np.flatnonzero(which == index)
            yield [self.classes[i].cluster for i in numbers], rows, layers[rows]

    def candidates(self, pipelines: Sequence[Pipeline]) -> Candidates:
        """Pipelines with equally many stages as input of the evaluator. Raises NotModelled."""
        every: Ints = np.array(pipelines)
        distinct, which = by_classes(pipelines)
        layers, recomputed = virtual_stages(every[:, :, 1], self.shape.vpp), None
        if self.shape.recompute == BLOCK:
            fewest = np.array([self.fewest(one) for one in distinct])
            of_stage = fewest[which[:, None], np.arange(every.shape[1]), every[:, :, 1]]
            recomputed = virtual_recomputed(every[:, :, 1], of_stage, self.shape.vpp)
        candidates = self.of_stages(distinct, which, layers, recomputed)
        for clusters, rows, layers in self._sharing(pipelines):
            ends = self.context.gradients.gathered(clusters, self.shape, layers)
            candidates.pp_ranks[PIPELINE_RANK.index("gathered"), 0, rows] = ends
        return candidates

    def of_stages(
        self, distinct: Sequence[tuple[int, ...]], which: Ints, layers: Ints, recomputed: Ints | None = None,
        most: Ints | None = None,
    ) -> Candidates:  # fmt: skip
        """Pipelines by the classes of their stages, `distinct[which]`, and their layers by virtual stage, shape (pipelines,
        virtual stages), as input of the evaluator; `recomputed` and `most` as in `Table.candidates`. Raises NotModelled."""
        alone = len(distinct[0]) == 1
        table_rows: Ints = np.array([one if alone else self._table_rows(one) for one in distinct])[which]
        candidates = self._table(alone).candidates(table_rows, layers, recomputed, most)
        messages = [self.messages(one) for one in distinct]
        for name, column in (("ahead", 0), ("back", 1)):
            candidates.stages[STAGE.index(name)] = np.array([message[column] for message in messages])[which].T
        if schedules.get(self.shape.schedule).RECEIVES_FIRST:
            candidates.stages[STAGE.index("joint")] = np.array([self._joint(one) for one in distinct])[which].T
        tied: Floats = np.array([message[2] for message in messages])[which]
        return replace(candidates, tied=tied)

    def _table(self, alone: bool) -> Table:
        """Costs of a stage of each class at each position on its nodes, or of the only stage of a pipeline (`alone`).

        `messages` gives the messages."""
        if alone not in self._tables:
            if alone:
                costs = [replace(option.alone[0], config=replace(option.config, pp=1)) for option in self.classes]
            else:
                own = ((self.classes[i], position) for i, position in self._positions)
                costs = [replace(option.costs[position], config=option.config) for option, position in own]
            messages, shared = np.zeros((len(costs), len(costs))), self.context.stage_rows
            self._tables[alone] = Table(costs, messages, shared=shared, recomputes=self.shape.recompute == BLOCK)
        return self._tables[alone]

    def _table_rows(self, classes: tuple[int, ...]) -> list[int]:
        """The row of `_table` of each stage of a pipeline of several."""
        return [self._table_row[i, index % len(self.classes[i].costs)] for i, index in self._indexed(classes)]

    def messages(self, classes: tuple[int, ...]) -> tuple[list[float], list[float], float]:
        """(ahead, back, tied) seconds of a pipeline whose stages are on these classes.

        ahead and back: by virtual stage, the message to the next virtual stage and to the previous one; tied: the all-reduce
        of a tied embedding's gradient, `UNTIED` where there is none."""
        if classes not in self._messages:
            ends = self._ends(classes)
            ahead, back = self.context.messages.of_pipeline(ends, self.shape, self._nic, self._together)
            clusters = self.classes[classes[0]].cluster, self.classes[classes[-1]].cluster
            tied = self.context.tied.seconds(*clusters, ends[-1][1], self.shape, self._nic) if len(ends) > 1 else 0.0
            self._messages[classes] = ahead, back, tied if tied > 0 else UNTIED
        return self._messages[classes]

    def _joint(self, classes: tuple[int, ...]) -> list[float]:
        """Seconds that the links of each stage need for the messages from both its neighbours (`MessageCosts.both`)."""
        return self.context.messages.of_both_sides(self._ends(classes), self.shape, self._nic, self._together)

    def _ends(self, classes: tuple[int, ...]) -> list[End]:
        """The cluster of each stage, and its number there."""
        return [(self.classes[i].cluster, index) for i, index in self._indexed(classes)]

    def _indexed(self, classes: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """(class, number of the stage among those of its class) of each stage."""
        used = [0] * len(self.classes)
        for i in classes:
            yield i, used[i]
            used[i] += 1

    def stages(self, pipeline: Pipeline) -> Stages:
        """(cluster, layers) of each stage."""
        return tuple((self.classes[i].cluster.name, layers) for i, layers in pipeline)

    def forwards(self, pipeline: Pipeline) -> int:
        """Forwards of one replica in a step."""
        return self.microbatches * len(pipeline) * self.shape.vpp

    def link_seconds(self, pipeline: Pipeline) -> float:
        """Seconds that all messages of a step, in both directions, take on the busiest link: a lower bound of the step."""
        runs = tuple((self.classes[i].cluster, len(list(stages))) for i, stages in groupby(i for i, _ in pipeline))
        least = self.shape.least_microbatches(self.context.request.workload)
        return least * self.context.loads.whole_pipeline(runs, self.shape, self._nic)

    def layer_capacity(self, classes: Sequence[int], kept: bool = False) -> list[int]:
        """Maximum number of layers that the memory of each stage holds, beside its microbatches in flight; `kept`: without
        recomputing any, where the shape leaves this to the stages."""
        every, pp = self._in_flight(classes), len(classes)
        if kept:
            return [memory.most_kept(role, held, pp) for memory, role, held in every]
        return [memory.most_layers(role, held, pp) for memory, role, held in every]

    def fewest(self, classes: Sequence[int]) -> list[tuple[int, ...]]:
        """Fewest layers that each stage recomputes if it has 0, 1, ... layers."""
        if self.shape.recompute != BLOCK:
            return [(0,) * (self.layers + 1)] * len(classes)
        return [memory.fewest(role, held, len(classes)) for memory, role, held in self._in_flight(classes)]

    def _in_flight(self, classes: Sequence[int]) -> Iterator[tuple[Memory, str, tuple[tuple[int, int], ...]]]:
        """(memory, role, microbatches in flight) of each stage."""
        pp, name, vpp = len(classes), self.shape.schedule, self.shape.vpp
        for stage, (i, role) in enumerate(zip(classes, roles(pp), strict=True)):
            yield self.classes[i].memory, role, schedules.in_flight(name, stage, pp, self.microbatches, vpp)


def evaluated_together(pipelines: Sequence[tuple[PipelineEvaluation, Pipeline]], limit: Seconds = math.inf) -> list[float]:
    """Seconds of a step of each pipeline, given with its evaluation; above `limit` they may be a lower bound above it. Raises
    NotModelled.

    Pipelines of equal length, schedule and number of microbatches form one batch, also over different classes."""
    grouped: dict[tuple[PipelineEvaluation, int], list[int]] = {}
    for index, (evaluation, pipeline) in enumerate(pipelines):
        grouped.setdefault((evaluation, len(pipeline)), []).append(index)
    batches: dict[tuple[object, ...], list[tuple[Candidates, list[int]]]] = {}
    for (evaluation, _), indices in grouped.items():
        candidates = evaluation.candidates([pipelines[index][1] for index in indices])
        batches.setdefault(candidates.structure, []).append((candidates, indices))
    seconds = [0.0] * len(pipelines)
    for batch in batches.values():
        ends, reductions = steps_and_reductions(join([candidates for candidates, _ in batch]), limit)
        first = 0
        for candidates, indices in batch:
            mine = slice(first, first := first + len(candidates))
            evaluation, listed = pipelines[indices[0]][0], [pipelines[index][1] for index in indices]
            every = evaluation.least(listed, candidates, ends[mine], reductions[:, mine]).tolist()
            for index, value in zip(indices, every, strict=True):
                seconds[index] = value
    return seconds


def by_classes(pipelines: Sequence[Pipeline]) -> tuple[list[tuple[int, ...]], Ints]:
    """The distinct classes of the stages of pipelines, and which of them each pipeline has."""
    numbers: dict[tuple[int, ...], int] = {}
    which = [numbers.setdefault(next(zip(*pipeline, strict=True)), len(numbers)) for pipeline in pipelines]
    return list(numbers), np.array(which)


def roles(pp: int) -> list[str]:
    """The role of each stage of a pipeline, as `NodeClass.cost` takes it: first, middle, last, or only."""
    return ["only"] if pp == 1 else ["first", *["middle"] * (pp - 2), "last"]
