"""Step times of pipelines of a model whose layers differ, on an idle network: those of `sim.analytic.evaluator`.

As `planner.search.evaluation`, but a stage is given by the layers of each kind that it has. Seconds are lower bounds of the
step where positions on nodes are known: not on an oversubscribed fabric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.bounds.rank_programme import Split
from planner.costs.busy_links import busy_links, least_steps
from planner.costs.context import PlanningContext
from planner.costs.layer_kinds import Counts, Ends
from planner.costs.unlike_layers import UnlikeStages
from planner.placement.leaves import oversubscribed
from planner.placement.ranks import virtual
from planner.space.shape import Shape
from sim.analytic.candidates import STAGE, UNTIED, Candidates, Floats
from sim.analytic.cost_rows import COSTS, candidates_of, costs_of, optimizer_of, without_vpp
from sim.analytic.evaluator import check
from sim.analytic.recurrence import steps_and_reductions
from sim.errors import NotModelled
from sim.plan import schedules
from sim.units import Seconds


class UnlikeEvaluation:
    """Evaluates pipelines of a shape; each rank of a pipeline is on a class, an index in `classes`.

    Raises NotModelled where the evaluator does not model the shape, or its seconds are no lower bounds."""

    def __init__(self, context: PlanningContext, shape: Shape, classes: Sequence[UnlikeStages]):
        self._context, self._shape, self._classes, self._layers = context, shape, tuple(classes), classes[0].layers
        self._config, self._m = classes[0].config, shape.microbatches(context.request.workload)
        self._rows: dict[tuple[int, int, Counts, Ends], tuple[float, ...]] = {}
        self._optimizers: dict[tuple[int, int, Counts, Ends], Seconds] = {}
        check(self._config)
        if not shape.divides(context.request.workload):
            raise NotModelled("replicas with unequal numbers of microbatches drift apart")
        if any(oversubscribed(option.cluster) for option in classes):
            raise NotModelled("on an oversubscribed fabric, the positions of stages are not known")

    def seconds(self, ranks: Sequence[int], splits: Sequence[Split], limit: Seconds) -> Floats:
        """Lower bounds in seconds on the steps of pipelines of several ranks, of which rank i is on the class ranks[i]; shape
        (splits,). Above `limit` they may be lower, but not below it. Raises NoRoute."""
        ends = [(self._classes[c], ranks[:rank].count(c)) for rank, c in enumerate(ranks)]
        nic = self._context.fleets.nic_of(tuple(dict.fromkeys(option.cluster for option, _ in ends)))
        together = self._context.messages.together([option.cluster for option, _ in ends], self._shape)
        candidates = self._candidates(ranks, splits, nic, together)
        seconds, _ = steps_and_reductions(candidates, limit)
        links = busy_links(self._context.loads, [(option.cluster, number) for option, number in ends], self._shape, nic)
        least = self._shape.least_microbatches(self._context.request.workload)
        return np.maximum(seconds, least_steps(candidates, links, least)) if links else seconds

    def _candidates(self, ranks: Sequence[int], splits: Sequence[Split], nic: str, together: int) -> Candidates:
        pp, vpp = len(ranks), self._shape.vpp
        rows, optimizer = np.zeros((len(COSTS), pp * vpp, len(splits))), np.zeros((pp, len(splits)))
        places = [(c, ranks[:rank].count(c)) for rank, c in enumerate(ranks)]
        for x, split in enumerate(splits):
            first, parts = 0, list[Counts]()
            for past in np.cumsum(virtual(split, vpp)).tolist():
                parts.append(self._layers.counts(min(first, self._layers.number), min(past, self._layers.number)))
                first = past
            for stage, counts in enumerate(parts):
                rows[:, stage, x] = self._row(*places[stage % pp], counts, (not stage, stage == len(parts) - 1))
            for rank, place in enumerate(places):
                whole = tuple(map(sum, zip(*parts[rank::pp], strict=True)))
                optimizer[rank, x] = self._optimizer(*place, whole, (not rank, rank == pp - 1))
        ends = [(self._classes[c].cluster, number) for c, number in places]
        ahead, back = self._context.messages.of_pipeline(ends, self._shape, nic, together)
        width, last = np.ones(len(splits)), self._classes[ranks[-1]].cluster
        tied = self._context.tied.seconds(self._classes[ranks[0]].cluster, last, places[-1][1], self._shape, nic)
        found = candidates_of(
            self._config, self._m, rows, optimizer, np.outer(ahead, width), np.outer(back, width), width * (tied or UNTIED)
        )
        if schedules.get(self._shape.schedule).RECEIVES_FIRST:
            joint = self._context.messages.of_both_sides(ends, self._shape, nic, together)
            found.stages[STAGE.index("joint")] = np.outer(joint, width)
        return found

    def _row(self, c: int, number: int, counts: Counts, ends: Ends) -> tuple[float, ...]:
        """`COSTS` of a virtual stage on the stage with a number of a class."""
        key = c, number, counts, ends
        if key not in self._rows:
            at = without_vpp(replace(self._classes[c].at(number, counts, ends[1]), config=self._classes[c].config))
            self._rows[key] = costs_of(at, sum(counts), *ends)
        return self._rows[key]

    def _optimizer(self, c: int, number: int, counts: Counts, ends: Ends) -> Seconds:
        key = c, number, counts, ends
        if key not in self._optimizers:
            at = replace(self._classes[c].at(number, counts, ends[1]), config=self._classes[c].config)
            self._optimizers[key] = optimizer_of(without_vpp(at), sum(counts), *ends)
        return self._optimizers[key]
