"""Tokens per second of exact training, and of sync strategies between islands, by the bandwidth of the trunks between islands.

The plans of the islands do not depend on these trunks, so that they are found once; the exact plan is found for each bandwidth.
Where a strategy begins to beat exact training, or stops to, is a crossing: the exact curve is interpolated between bandwidths
over the logarithms, the strategy is computed anew for each trial."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.islands import sync_rows
from planner.islands.budgets import check_limits
from planner.islands.island_plans import IslandPlans, alike, exact_plan, with_batches
from planner.islands.node_ranges import Partition
from planner.islands.partitions import partitions
from planner.islands.sync_rows import SyncRow
from planner.placement.simulation import simulate_plan, step
from planner.request import Request
from planner.time_limit import TimeLimit
from sim.errors import Infeasible, OptionError
from sim.hardware.topology import Topology
from sim.plan.islands import check_exchanged
from sim.plan.plan import Plan
from sim.sync import Sync
from sim.units import BytesPerSecond

AFTERWARDS = 0.4
"""Share of the time limit that the searches for exact plans leave for their simulation at other bandwidths (a guess)."""
BISECTIONS = 18
"""Halvings of a range of bandwidths to find a crossing: of a threefold range to 5e-6 of it, more exact than any prediction."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """At `bandwidth` a sync strategy gives as many tokens per second as exact training; above it, it `gains` or loses."""

    sync: Sync
    bandwidth: BytesPerSecond
    gains: bool


@dataclass(frozen=True, slots=True)
class TrunkSweep:
    """exact: the best exact plan for each of `bandwidths`; rows: that of each sync strategy, None where it has no room."""

    topology: Topology
    partition: Partition
    bandwidths: tuple[BytesPerSecond, ...]
    exact: tuple[SyncRow, ...]
    rows: dict[Sync, tuple[SyncRow | None, ...]]
    crossings: tuple[Crossing, ...]


def trunk_sweep(
    request: Request,
    bandwidths: Sequence[BytesPerSecond],
    settings: Sequence[Sync],
    progress: Callable[[str], None] = lambda text: None,
) -> TrunkSweep:
    """Sweep the bandwidth of all trunks between the finest islands, those of `partitions`.

    Raises OptionError where the fleet has no trunk or fewer than two bandwidths are given, Infeasible where an island has no
    plan that fits, NotModelled for PowerSGD of adapters."""
    check_exchanged(request.workload, (sync.compression for sync in settings))
    check_limits(request.limits)
    if request.limits.cost is not None or request.limits.training is not None:
        raise OptionError("require.cost and require.days choose a plan, and a sweep of trunks shows all; leave them out")
    parts = partitions(request)
    if not parts or not request.topology.fleet.trunks:
        raise OptionError(f"topology {request.topology.name} has no link between clusters whose bandwidth could change")
    if len(bandwidths) < 2:
        raise OptionError("at least two bandwidths are needed")
    partition, limit = parts[-1], TimeLimit(request.time_limit)
    runs = len({alike(request, names) for names in partition}) + 1 + len(bandwidths)
    plans = IslandPlans(request, limit, progress, runs)
    tried = list(with_batches(partition, plans).values())
    if not tried:
        raise Infeasible(
            f"no plans of {len(partition)} islands fit, each with a part of {request.workload.global_batch_size} sequences"
        )
    islands = tried[-1]
    alone = sync_rows.of_plan(plans.plan(partition[_fastest(islands)], request.workload.global_batch_size))
    ordered, exact, found = sorted(bandwidths), list[SyncRow](), list[Plan]()
    for index, bandwidth in enumerate(ordered):
        there = replace(request, topology=with_trunks(request.topology, partition, bandwidth))
        with limit.sooner(AFTERWARDS * request.time_limit if math.isfinite(request.time_limit) else 0.0):
            plan = exact_plan(there, limit.seconds_left / (len(ordered) - index), progress)
        if plan is not None and all(_placed(plan) != _placed(one) for one in found):
            found.append(plan)
        # plans that were found for thinner trunks are tried, too
        again = [sync_rows.of_plan(simulate_plan(_on(plan, there.topology))) for plan in found]
        exact.append(max([alone, *again], key=lambda row: row.tokens_per_s))
    curve = Curves(request.topology, partition, islands, ordered, [row.tokens_per_s for row in exact])
    rows = {sync: tuple(curve.row(sync, bandwidth) for bandwidth in ordered) for sync in settings}
    crossings = tuple(crossing for sync in settings for crossing in curve.crossings(sync, rows[sync]))
    return TrunkSweep(request.topology, partition, tuple(ordered), tuple(exact), rows, crossings)


def with_trunks(topology: Topology, partition: Partition, bandwidth: BytesPerSecond) -> Topology:
    """The topology with this bandwidth on all trunks between islands."""
    number = {name: index for index, names in enumerate(partition) for name in names}
    trunks = tuple(
        replace(trunk, bandwidth=bandwidth) if number.get(trunk.between[0]) != number.get(trunk.between[1]) else trunk
        for trunk in topology.fleet.trunks
    )
    return replace(topology, fleet=replace(topology.fleet, trunks=trunks))


class Curves:
    """Tokens per second by bandwidth: of sync strategies with the plans of some islands, and of exact training."""

    def __init__(
        self,
        topology: Topology,
        partition: Partition,
        islands: tuple[Plan, ...],
        bandwidths: Sequence[BytesPerSecond],
        exact: Sequence[float],
    ):
        self.topology, self.partition, self.islands = topology, partition, islands
        self.bandwidths, self.logs, self.exact = bandwidths, np.log(bandwidths), np.log(exact)

    def row(self, sync: Sync, bandwidth: BytesPerSecond) -> SyncRow | None:
        """The row of a sync strategy at a bandwidth; None where its state does not fit the islands."""
        there = with_trunks(self.topology, self.partition, bandwidth)
        islands = tuple(_on(island, there) for island in self.islands)
        return next((row for _, row in sync_rows.rows(self.partition, islands, ((0, sync),))), None)

    def crossings(self, sync: Sync, rows: Sequence[SyncRow | None]) -> Iterator[Crossing]:
        """Bandwidths at which a sync strategy and exact training give equally many tokens per second."""
        signs = [row.tokens_per_s > math.exp(own) if row else None for row, own in zip(rows, self.exact, strict=True)]
        for (low, high), (before, after) in zip(itertools.pairwise(self.logs.tolist()), itertools.pairwise(signs), strict=True):
            if before is None or after is None or before == after:
                continue
            for _ in range(BISECTIONS):
                middle = (low + high) / 2
                low, high = (middle, high) if self._is_faster(sync, middle) == before else (low, middle)
            yield Crossing(sync, math.exp((low + high) / 2), bool(after))

    def _is_faster(self, sync: Sync, log_bandwidth: float) -> bool:
        """Whether a sync strategy gives more tokens per second than exact training."""
        row = self.row(sync, math.exp(log_bandwidth))
        return row is not None and row.tokens_per_s > math.exp(float(np.interp(log_bandwidth, self.logs, self.exact)))


def _placed(plan: Plan) -> tuple[object, ...]:
    """What is equal for plans that differ in nothing but the bandwidths of their topologies."""
    return plan.config, plan.stages, plan.placement


def _fastest(islands: tuple[Plan, ...]) -> int:
    """Index of the island with most sequences per second."""
    return max(range(len(islands)), key=lambda i: islands[i].workload.global_batch_size / step(islands[i]))


def _on(plan: Plan, topology: Topology) -> Plan:
    """The plan on the fleet of another topology."""
    return replace(plan, topology=replace(topology, workload=plan.topology.workload))
