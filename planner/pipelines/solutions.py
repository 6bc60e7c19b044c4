"""Solutions of the master programme in the order of what they promise, with the parts planned that they need.

A solution belongs to a limit of replicas and to a limit of the seconds of gradients, which its deadline pays for. Of all pairs
of limits, the one whose solution computes most samples within the deadline comes first. Where a solution has parts that are not
planned yet, these are planned, and it is solved anew: what it promises becomes less, since parts that are not planned are
optimistic, and another pair of limits may come before it (lazy evaluation, as of Minoux, Accelerated greedy algorithms, 1978).

Parts that are not planned yet compute what their devices compute in the best known columns of their clusters, and no more than
their bound says (`part_bounds`); none where their gradients take longer than the limit."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence

from planner.models.pipeline_master import Choice, most_samples, quick_bound
from planner.pipelines.budgets import Work
from planner.pipelines.columns import Column, Columns
from planner.pipelines.part_bounds import PartBounds
from planner.pipelines.parts import Part, peak
from planner.request import Request
from sim.units import Seconds

REPLICAS = (2, 3, 4, 8, 64)
"""Limits of the number of replicas that are tried (a guess): of n replicas, a rank sends (n - 1) / n of its gradients."""
ALIKE = 0.1
"""Relative difference of seconds of gradients for which one limit stands for several columns (a guess)."""
SHARE = 0.75
"""Share of the batch that a solution must compute within the deadline (a guess), since gradients may take less than is
estimated; parts are planned only for solutions that compute all of it."""
ACROSS = 0.95
"""What pipelines across clusters are taken to compute of the best of each, until they are planned (a guess)."""
LADDER = 6
"""Halvings of the deadline that are limits of gradients, for parts that are not planned yet (a guess)."""

Limits = tuple[int, Seconds]
"""Most replicas, and most seconds of their gradients."""


class Solutions:
    """The solutions of a request for parts of its fleet."""

    def __init__(self, request: Request, every: Sequence[Part], columns: Columns, bounds: PartBounds, work: Work):
        self.request, self.every, self.columns, self.bounds, self.work = request, every, columns, bounds, work
        self._clusters = tuple(request.clusters())
        self._nodes = tuple(cluster.nodes for cluster in self._clusters)
        self._batch = request.workload.global_batch_size

    def ordered(self, deadline: Seconds, plans_more: bool = True) -> Iterator[tuple[Column, ...]]:
        """Columns that compute most samples within a deadline, by the limits of replicas and gradients: those of the limits
        that promise most first. plans_more: whether parts are planned beside single nodes and whole clusters."""
        self._plan_clusters()
        seen = set[Limits]()
        waiting = [(-math.inf, *limits) for limits in self._limits(deadline, seen)]
        heapq.heapify(waiting)
        while waiting and not self.work.limit.is_up():
            _, replicas, allowed = heapq.heappop(waiting)
            every = self._offered(deadline - allowed, replicas, allowed)
            offered = [one for one in every if plans_more or one[1] is not None]
            if quick_bound([choice for choice, _ in offered], self._nodes) < SHARE * self._batch * (1 - 1e-9):
                continue
            chosen = self._chosen(offered, replicas)
            samples = sum(choice.samples for choice, _ in chosen)
            unknown = dict.fromkeys((choice.nodes, choice.replicas == 1) for choice, column in chosen if column is None)
            if unknown and samples < self._batch * (1 - 1e-9):
                chosen, unknown = self._chosen([one for one in offered if one[1] is not None], replicas), {}
                samples = sum(choice.samples for choice, _ in chosen)
            if samples < SHARE * self._batch:
                continue
            if waiting and -samples > waiting[0][0]:
                heapq.heappush(waiting, (-samples, replicas, allowed))
            elif unknown:
                for part, one in unknown:
                    if not self.work.limit.is_up():
                        self.columns.of(part, one)
                for limits in ((replicas, allowed), *self._limits(deadline, seen)):
                    heapq.heappush(waiting, (-samples, *limits))
            else:
                yield tuple(column for _, column in chosen if column is not None)

    def _plan_clusters(self) -> None:
        """Plan single nodes, which say what a cluster can reach, and whole clusters: few parts are planned sooner, and
        pipelines on them send their messages over the network of the cluster."""
        for cluster, number in enumerate(self._nodes):
            node = single_node(self._nodes, cluster)
            whole = tuple(number * one for one in node)
            for part, one in ((node, True), (whole, True), (whole, False)):
                if part in self.every and self.columns.searched < self.work.budgets.columns and not self.work.limit.is_up():
                    self.columns.of(part, one)

    def _limits(self, deadline: Seconds, seen: set[Limits]) -> Iterator[Limits]:
        """Limits that are not seen yet, which then are: for each number of replicas the seconds of the gradients of known
        columns, without those that are hardly above the one before, and below them halves of the deadline."""
        devices = sum(cluster.devices for cluster in self._clusters)
        for replicas in (number for number in REPLICAS if number <= devices):
            known, last = sorted(column.gradients(replicas) for column in self.columns.known if column.offered), 0.0
            ladder = [deadline / (1 << power) for power in range(LADDER, 0, -1)]
            least = known[0] if known else math.inf
            for seconds in (*(one for one in ladder if one < least), *known):
                if last < seconds < deadline:
                    last = seconds * (1 + ALIKE)
                    if (replicas, last) not in seen:
                        seen.add((replicas, last))
                        yield replicas, last

    def _chosen(self, offered: list[tuple[Choice, Column | None]], replicas: int) -> list[tuple[Choice, Column | None]]:
        """Those of the offered columns that together compute most samples, each as often as it has copies."""
        copies = most_samples([choice for choice, _ in offered], self._nodes, replicas, self.work.limit) if offered else ()
        return [one for one, number in zip(offered, copies, strict=True) for _ in range(number)]

    def _offered(self, deadline: Seconds, replicas: int, allowed: Seconds) -> Iterator[tuple[Choice, Column | None]]:
        """The columns of the master programme for a deadline; None where a part is not planned yet."""
        rates = self._best_rates() if self.columns.searched < self.work.budgets.columns else [0.0] * len(self._nodes)
        for part, one in itertools.product(self.every, (True, False) if replicas > 2 else (True,)):
            if self.columns.is_known(part, one):
                for column in self.columns.of(part, one):
                    samples = column.samples(deadline) if column.offered else 0
                    if samples and column.gradients(replicas) <= allowed:
                        yield Choice(part, column.plan.config.dp, samples), column
                continue
            rate = sum(number * each for number, each in zip(part, rates, strict=True))
            rate *= ACROSS if sum(map(bool, part)) > 1 else 1.0
            if rate * deadline > 0 and self.bounds.gradients(part, replicas) <= allowed:
                most = min(rate * deadline, self.bounds.samples(part, one, deadline))
                if most:
                    yield Choice(part, 1 if one else 2, most), None

    def _best_rates(self) -> list[float]:
        """The most samples a second that a known column computes for each of its nodes, by cluster; of a cluster without a
        column of its own, by the peak of its devices and the best share of it that any column reaches."""
        found, share = [0.0] * len(self._nodes), 0.0
        for column in self.columns.known:
            rate = column.plan.config.dp * column.plan.config.microbatch_size / column.each_s
            share = max(share, rate / peak(self.request, column.part))
            own = [cluster for cluster, number in enumerate(column.part) if number]
            if len(own) == 1:
                found[own[0]] = max(found[own[0]], rate / column.part[own[0]])
        share = share or self._batch / self.request.workload.flops
        return [known or share * peak(self.request, single_node(self._nodes, cluster)) for cluster, known in enumerate(found)]


def single_node(nodes: Sequence[int], cluster: int) -> Part:
    """The part of one node of a cluster."""
    return tuple(int(other == cluster) for other in range(len(nodes)))
