"""Plans of islands: the certified plan of each set of clusters for each batch, found once, and moved to equal clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner import api
from planner.costs.context import PlanningContext
from planner.islands.batches import divided, unit
from planner.islands.partitions import Partition, peak
from planner.placement.simulation import step
from planner.request import Request
from planner.time_limit import TimeLimit
from sim.errors import Infeasible
from sim.hardware.cluster import Cluster, Device
from sim.plan.plan import Plan

UNEQUAL, DIVISIONS = 0.02, 3
"""Relative difference of inner steps from which the batch is divided anew, and how often it is divided at most. Guesses."""
Tried = dict[tuple[Partition, tuple[int, ...]], tuple[Plan, ...]]
"""(partition, batches) -> plans of the islands."""
LEAST_SECONDS = 1.0
"""Least time limit of the search for the plan of one island. A guess."""


class IslandPlans:
    """Plans of islands of one request, within one time limit.

    `runs` is the number of searches that are still expected; each has its share of the time that is left."""

    def __init__(self, request: Request, limit: TimeLimit, progress: Callable[[str], None], runs: int):
        self.request, self.limit, self.progress, self.runs = request, limit, progress, runs
        self._found: dict[tuple[tuple[str, ...], int], Plan | Infeasible] = {}
        self._clusters = {cluster.name: cluster for cluster in request.clusters()}

    def plan(self, names: tuple[str, ...], batch: int) -> Plan:
        """The plan of an island with a batch, in sequences. Raises Infeasible where there is none."""
        key = names, batch
        if key not in self._found:
            twin = self._twin(names, batch)
            self._found[key] = self._search(names, batch) if twin is None else _moved(self._found[twin, batch], names[0])
        found = self._found[key]
        if isinstance(found, Infeasible):
            raise found
        return found

    def _search(self, names: tuple[str, ...], batch: int) -> Plan | Infeasible:
        """Search for the plan of an island."""
        seconds = max(self.limit.seconds_left / max(self.runs, 1), LEAST_SECONDS)
        self.runs -= 1
        machines = tuple((name, self._clusters[name].nodes) for name in names)
        workload = replace(self.request.workload, global_batch_size=batch)
        request = replace(self.request, workload=workload, machines=machines, time_limit=seconds)
        who = f"{' + '.join(names)}, batch {batch}"
        context = PlanningContext(request, lambda text: self.progress(f"{who}: {text}"), punctual=True)
        try:
            found = api.plan(request, context=context)
        except Infeasible as error:
            return error
        if context.interrupted:
            raise KeyboardInterrupt
        return found

    def _twin(self, names: tuple[str, ...], batch: int) -> tuple[str, ...] | None:
        """An island with a known plan on a cluster that differs in nothing but its name and hosts."""
        if len(names) > 1:
            return None
        own = _nameless(self._clusters[names[0]])
        for other, size in self._found:
            if size == batch and len(other) == 1 and _nameless(self._clusters[other[0]]) == own:
                return other
        return None


def _moved(found: Plan | Infeasible, name: str) -> Plan | Infeasible:
    """What is known of a cluster, for an equal one."""
    if isinstance(found, Infeasible):
        return found
    return replace(found, placement=tuple(Device(name, device.node, device.index) for device in found.placement))


def alike(request: Request, names: tuple[str, ...]) -> object:
    """What is equal for islands that one search is enough for: a single cluster without its name, or the names of several."""
    return names if len(names) > 1 else _nameless(request.topology.fleet.cluster(names[0]))


def _nameless(cluster: Cluster) -> Cluster:
    return replace(cluster, name="", hosts=())


def exact_plan(request: Request, seconds: float, progress: Callable[[str], None]) -> Plan | None:
    """The plan of the whole fleet without islands; None where there is none. Raises KeyboardInterrupt where Ctrl-C ended it."""
    inside = replace(request, time_limit=max(seconds, 1.0))
    context = PlanningContext(inside, lambda text: progress(f"exact: {text}"), punctual=True)
    try:
        found = api.plan(inside, context=context)
    except Infeasible:
        return None
    if context.interrupted:
        raise KeyboardInterrupt
    return found


def with_batches(partition: Partition, plans: IslandPlans) -> Tried:
    """Plans of the islands of a partition: for a batch divided by their peaks, then twice by the speeds that they have; none
    where an island has no plan."""
    batch = plans.request.workload.global_batch_size
    if batch // unit(batch) < len(partition):
        return {}
    found: Tried = {}
    speeds = tuple(peak(plans.request, names) for names in partition)
    for _ in range(DIVISIONS):
        batches = divided(batch, speeds)
        if (partition, batches) in found:
            break
        try:
            islands = tuple(plans.plan(names, own) for names, own in zip(partition, batches, strict=True))
        except Infeasible:
            break
        found[partition, batches] = islands
        steps = tuple(map(step, islands))
        if max(steps) <= min(steps) * (1 + UNEQUAL) or plans.limit.is_up():
            break
        speeds = tuple(own / seconds for own, seconds in zip(batches, steps, strict=True))
    return found
