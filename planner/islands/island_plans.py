"""Plans of islands: the certified plan of each set of clusters for each batch, found once, and moved to equal clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner import api
from planner.costs.context import PlanningContext
from planner.islands.batches import divided, unit
from planner.islands.budgets import divisions, inside
from planner.islands.node_ranges import Island, NodeRange, Partition, cluster_and_first, clusters_of, name_of
from planner.islands.partitions import peak
from planner.limits import Limits
from planner.placement.simulation import step
from planner.request import Request
from planner.time_limit import TimeLimit
from sim.errors import Infeasible
from sim.hardware.cluster import Cluster, Device
from sim.plan.plan import Plan

UNEQUAL, DIVISIONS = 0.02, 3
"""Relative difference of inner steps from which the batch is divided anew, and how often it is divided at most. Guesses."""
FINER = 2, 4
"""Numbers of parts of a unit in which the batch of the fastest islands is divided at last. A guess: with smaller parts, fewer
layouts divide the batch of an island."""
Tried = dict[tuple[Partition, tuple[int, ...]], tuple[Plan, ...]]
"""(partition, batches) -> plans of the islands."""
LEAST_SECONDS = 1.0
"""Least time limit of the search for the plan of one island. A guess."""
_Key = tuple[Island, int, Limits]
"""An island, its batch, and its limits."""


class IslandPlans:
    """Plans of islands of one request, within one time limit.

    `runs` is the number of searches that are still expected; each has its share of the time that is left."""

    def __init__(self, request: Request, limit: TimeLimit, progress: Callable[[str], None], runs: int):
        self.request, self.limit, self.progress, self.runs = request, limit, progress, runs
        self._found: dict[_Key, Plan | Infeasible] = {}

    def plan(self, island: Island, batch: int, limits: Limits | None = None) -> Plan:
        """The plan of an island with a batch, in sequences, within limits, if not those of the request. Raises Infeasible where
        there is none."""
        key = island, batch, inside(limits or self.request.limits)
        if key not in self._found:
            twin = self._twin(key)
            self._found[key] = self._search(*key) if twin is None else self._moved(self._found[twin], twin[0][0], island[0])
        found = self._found[key]
        if isinstance(found, Infeasible):
            raise found
        return found

    def _search(self, island: Island, batch: int, limits: Limits) -> Plan | Infeasible:
        """Search for the plan of an island."""
        seconds = max(self.limit.seconds_left / max(self.runs, 1), LEAST_SECONDS)
        self.runs -= 1
        clusters = clusters_of(self.request, island)
        machines = tuple((cluster.name, cluster.nodes) for cluster in clusters)
        if isinstance(part := island[0], NodeRange):
            machines = ((part.cluster, part.nodes),)
        workload = replace(self.request.workload, global_batch_size=batch)
        wishes = replace(self.request.wishes, offload=self.request.wishes.offload or "none")  # hosts have the outer state
        request = replace(self.request, workload=workload, machines=machines, time_limit=seconds, limits=limits, wishes=wishes)
        who = f"{name_of(island)}, batch {batch}"
        context = PlanningContext(request, lambda text: self.progress(f"{who}: {text}"), punctual=True)
        try:
            found = api.plan(request, context=context)
        except Infeasible as error:
            return error
        if context.interrupted:
            raise KeyboardInterrupt
        return self._moved(found, cluster_and_first(island[0])[0], island[0]) if len(island) == 1 else found

    def _twin(self, key: _Key) -> _Key | None:
        """A known plan of an island on a cluster that differs in nothing but its name and hosts."""
        island, batch, limits = key
        if len(island) > 1:
            return None
        own = alike(self.request, island)
        for other in self._found:
            if other[1:] == (batch, limits) and len(other[0]) == 1 and alike(self.request, other[0]) == own:
                return other
        return None

    def _moved(self, found: Plan | Infeasible, before: str | NodeRange, after: str | NodeRange) -> Plan | Infeasible:
        """What is known of a cluster or a range of nodes, for an equal one."""
        if isinstance(found, Infeasible):
            return found
        cluster, first = cluster_and_first(after)
        shift = first - cluster_and_first(before)[1]
        placement = tuple(Device(cluster, device.node + shift, device.index) for device in found.placement)
        return replace(found, placement=placement)


def alike(request: Request, island: Island) -> object:
    """What is equal for islands that one search is enough for: a single cluster, or a range of its nodes, without its name,
    with the limits of plans on it, or the names of several."""
    if len(island) > 1:
        return island
    (part,), (name, _) = clusters_of(request, island), cluster_and_first(island[0])
    return _nameless(part), dict(request.limits.on_clusters).get(name)


def _nameless(cluster: Cluster) -> Cluster:
    return replace(cluster, name="", hosts=())


def exact_plan(request: Request, seconds: float, progress: Callable[[str], None]) -> Plan | None:
    """The plan of the whole fleet without islands, whatever days it takes; None where there is none.

    Raises KeyboardInterrupt where Ctrl-C ended it."""
    here = replace(request, time_limit=max(seconds, 1.0), limits=replace(request.limits, training=None))
    context = PlanningContext(here, lambda text: progress(f"exact: {text}"), punctual=True)
    try:
        found = api.plan(here, context=context)
    except Infeasible:
        return None
    if context.interrupted:
        raise KeyboardInterrupt
    return found


def with_batches(partition: Partition, plans: IslandPlans) -> Tried:
    """Plans of the islands of a partition: for a batch divided by their peaks, then twice by the speeds that they have.

    This for each way to divide limits of devices and rent; the fastest is kept for each batch. None where an island has no
    plan."""
    batch = plans.request.workload.global_batch_size
    if batch // unit(batch) < len(partition):
        return {}
    found: Tried = {}
    for limits in divisions(plans.request, partition):
        for key, islands in _within(partition, plans, limits).items():
            if key not in found or max(map(step, islands)) < max(map(step, found[key])):
                found[key] = islands
    return found


def _within(partition: Partition, plans: IslandPlans, limits: tuple[Limits, ...]) -> Tried:
    """Plans of the islands of a partition within limits of each."""
    found: Tried = {}
    speeds = tuple(_peak_within(plans.request, names, own) for names, own in zip(partition, limits, strict=True))
    for _ in range(DIVISIONS):
        batches = divided(plans.request.workload.global_batch_size, speeds)
        if (partition, batches) in found:
            break
        try:
            islands = tuple(map(plans.plan, partition, batches, limits))
        except Infeasible:
            break
        found[partition, batches] = islands
        steps = tuple(map(step, islands))
        if max(steps) <= min(steps) * (1 + UNEQUAL) or plans.limit.is_up():
            break
        speeds = tuple(own / seconds for own, seconds in zip(batches, steps, strict=True))
    return found


def with_finer_batches(tried: Tried, plans: IslandPlans) -> Tried:
    """Plans of the islands with the shortest inner step, for batches divided in parts of a unit by the best speed that each
    island has with any batch; only where the longest step may become shorter by `UNEQUAL`. `tried` has one set of islands or
    more."""
    partition, _ = min(tried, key=lambda key: max(map(step, tried[key])))
    found = {key: islands for key, islands in tried.items() if key[0] == partition}
    batch, finer = plans.request.workload.global_batch_size, {}
    for parts in FINER:
        speeds = tuple(max(key[1][i] / step(own[i]) for key, own in found.items()) for i in range(len(partition)))
        batches = divided(batch, speeds, max(unit(batch) // parts, 1))
        shortest = max(own / speed for own, speed in zip(batches, speeds, strict=True))
        if plans.limit.is_up() or (partition, batches) in found:
            continue
        if shortest * (1 + UNEQUAL) > min(max(map(step, own)) for own in found.values()):
            continue
        for limits in divisions(plans.request, partition):
            try:
                islands = tuple(map(plans.plan, partition, batches, limits))
            except Infeasible:
                continue
            if (partition, batches) not in found or max(map(step, islands)) < max(map(step, found[partition, batches])):
                found[partition, batches] = finer[partition, batches] = islands
    return finer


def _peak_within(request: Request, island: Island, limits: Limits) -> float:
    """FLOP/s of the devices of an island that its limits allow, taken as alike."""
    whole = sum(cluster.devices for cluster in clusters_of(request, island))
    share = 1.0 if limits.devices is None else min(limits.devices / whole, 1.0)
    return peak(request, island) * share
