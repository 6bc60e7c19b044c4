"""A pipeline along a V on given clusters: the splits of its layers that may be fast, and the fastest that is allowed."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.bounds.two_stage_ranks import LEAST, Ints, TwoStageRanks, halves
from planner.placement.ranks import build, stages_of, with_collectives
from planner.placement.simulation import fits
from planner.request import Request
from planner.space.shape import Shape
from sim.analytic.candidates import Floats
from sim.analytic.equal_replicas import replica_classes
from sim.analytic.evaluator import Table
from sim.analytic.plan_costs import PlanCosts
from sim.analytic.recurrence import steps
from sim.errors import NotDefined, NotModelled
from sim.field_changes import changed
from sim.kernels import communicators, memory
from sim.plan.plan import Plan
from sim.units import Seconds

MOST_SPLITS = 20_000
"""Splits that are evaluated (a guess); of more, the bound of the ranks is kept."""
REFUSED = 400
"""Splits that memory or the request may refuse before the search ends (a guess)."""
NEARLY = 1e-3
"""By how much more seconds than the least, relatively, the balanced split may take (a guess)."""


class TargetRefuses(NotDefined):
    """The target cannot express the layout."""


class PlacedV:
    """The pipelines of a shape with a pipeline rank on each of some clusters, in order, node after node.

    overlap: (overlap_grad_reduce, overlap_param_gather). Raises NoRoute, NotModelled, NotDefined, or TargetRefuses."""

    def __init__(self, request: Request, shape: Shape, clusters: tuple[str, ...], overlap: tuple[bool, bool]):
        self._request, total, pp = request, request.workload.model.layers, len(clusters)
        even = tuple(total * (rank + 1) // pp - total * rank // pp for rank in range(pp))
        own = changed(shape, vpp=2, overlap_param_gather=overlap[1])
        plan = build(replace(request, target=None), own, tuple(zip(clusters, even, strict=True)), "certified")
        if not overlap[0]:
            plan = replace(plan, config=replace(plan.config, overlap_grad_reduce=False, overlap_param_gather=False))
        if (target := request.target) is not None:
            faults = sorted(
                target.unsupported_layout(plan.config, plan.workload), key=lambda one: not one.startswith("schedule")
            )
            if faults:
                raise TargetRefuses(f"{target.can_not} express {faults[0]}")
        self._plan = plan
        self._allowed = self._with_room()
        most = np.where(self._allowed, np.arange(total + 1), 0).max(axis=1)
        self._has_room = bool(most.min() > 0 and most.sum() >= total)

    @functools.cached_property
    def _tables(self) -> list[Table]:
        return list(_tables(self._plan))

    @functools.cached_property
    def _ranks(self) -> list[TwoStageRanks]:
        total, config = self._request.workload.model.layers, self._plan.config
        return [TwoStageRanks(table, config.pp, total, config.num_microbatches[0]) for table in self._tables]

    def _with_room(self) -> NDArray[np.bool_]:
        """Which numbers of layers each rank has memory for, shape (ranks, layers + 1)."""
        plan, total, pp = self._plan, self._request.workload.model.layers, self._plan.config.pp
        free, found = 1.0 - plan.topology.memory_headroom, np.zeros((pp, total + 1), dtype=bool)
        for pp_rank, limit in enumerate(memory.limits(plan)):
            config, ends = plan.config_of((pp_rank,)), plan.ends(plan.stages_of(pp_rank))
            pairs, outside = memory.in_flight(plan, pp_rank), communicators.outside_torch(config)
            for layers in range(LEAST, total - LEAST * (pp - 1) + 1):
                needed = [memory.rank_bytes(plan.workload, config, layers, held, *ends, waits) for held, waits in pairs]
                if max(needed) + outside > limit * free:
                    break
                found[pp_rank, layers] = True
        return found

    @property
    def _limit(self) -> Seconds:
        """Seconds that are looked at where no plan is known: twice those of all layers on the slowest rank."""
        work = self._ranks[0].work
        return 2.0 * float(work[np.isfinite(work)].max())

    def balanced(self) -> Iterator[Plan]:
        """The plan of the most balanced split, and of two with equally long ranks but for one at an end, where allowed."""
        if not self._has_room:
            return
        ranks, total, pp = self._ranks[0], self._request.workload.model.layers, self._plan.config.pp
        least = ranks.least_seconds(0.0, self._limit, self._allowed)
        found = ranks.most_layers(least * (1 + NEARLY), self._allowed)
        candidates = [] if found is None else [_fitted(ranks, *found)]
        each = total // pp // 2 * 2
        rest = each + total - each * pp
        candidates += [np.array([rest, *[each] * (pp - 1)]), np.array([*[each] * (pp - 1), rest])]
        for split in candidates:
            if (split >= LEAST).all() and (made := self._made(split)) is not None:
                yield made

    def search(self, target: Seconds, above: Seconds) -> tuple[Seconds, Plan | None]:
        """(a lower bound on all plans, at most `target` where they are slower; the plan that is fastest on an idle network and
        allowed, if it may be faster than `target`). above: a known lower bound."""
        if not self._has_room:
            return math.inf, None
        limit, ranks = target if math.isfinite(target) else self._limit, self._ranks[0]
        if ranks.most_layers(math.inf, self._allowed) is None:
            return math.inf, None
        splits = ranks.splits(limit, self._allowed, MOST_SPLITS)
        if splits is None:
            return max(above, ranks.least_seconds(above, limit, self._allowed)), None
        seconds = self._evaluated(splits) if len(splits) else np.zeros(0)
        for refused, index in enumerate(np.argsort(seconds, kind="stable").tolist()):
            if seconds[index] >= limit:
                break
            made = self._made(splits[index])
            if made is not None or refused >= REFUSED:
                return float(seconds[index]), made
        return limit, None

    def _evaluated(self, splits: Ints) -> Floats:
        """Seconds of a step of each split on an idle network, those of the slowest replicas."""
        pp, ways = self._plan.config.pp, halves(splits)
        layers, own = np.concatenate([ways[0], ways[1][:, ::-1]], axis=1), np.tile(np.arange(pp), (len(splits), 1))
        found: Floats = np.max([steps(table.candidates(own, layers)) for table in self._tables], axis=0)
        return found

    def _made(self, split: Ints) -> Plan | None:
        """The plan of a split; None where memory or the request refuses it."""
        try:
            made = replace(self._plan, stages=stages_of(tuple(split.tolist()), self._plan.config))
        except (NotDefined, NotModelled):
            return None
        if not fits(made) or self._request.refuses(made):
            return None
        fastest = with_collectives(made)
        return made if self._request.refuses(fastest) else fastest


def _tables(plan: Plan) -> Iterator[Table]:
    """The costs of the pipeline ranks of each class of replicas, a class for each rank; collectives are the fastest ones, which
    may be others for other layers."""
    costs, pp = PlanCosts(plan, fastest=True), plan.config.pp
    for replicas in replica_classes(plan):
        messages = np.zeros((pp, pp))
        for a, b in itertools.pairwise(range(pp)):
            messages[a, b], messages[b, a] = costs.message(a, b, replicas), costs.message(b, a, replicas)
        ranks = [costs.at(pp_rank, replicas, (pp_rank,)) for pp_rank in range(pp)]
        yield Table(ranks, messages, specs=[costs.specs(pp_rank, replicas) for pp_rank in range(pp)])


def _fitted(ranks: TwoStageRanks, least: Ints, most: Ints) -> Ints:
    """The largest numbers of layers, less some of the ranks that take longest."""
    split = most.copy()
    while split.sum() > ranks.total:
        seconds = np.where(split > least, ranks.work[np.arange(len(split)), split], -math.inf)
        split[np.argmax(seconds)] -= 1
    return split
