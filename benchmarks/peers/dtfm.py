"""DT-FM's communication cost (arXiv 2206.01288; DS3Lab/DT-FM cda948f) of plans on its five cases, and structured plans.

64 peers (devices) train 8 stages of 8 replicas. The cost, in seconds, of a partition of the peers into groups, one per stage:

    max over groups of max over their peers i of  sum over j != i of 2 (delay_ij + G / (8 b_ij))
    + 2 x the shortest open path through all groups; from group to group it takes the perfect matching whose longest
      delay_ij + A / b_ij is least

with G the gradients of a stage and A the activations that a replica sends. A layout is structured if it is built from units of
close peers (a node with several devices, or a cluster of single devices): units of equal size are divided into blocks of b
units, and each stage of a block has equally many peers from each unit of the block. With b = 1 stages are inside units; with b
= all each stage is spread over all units.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

from holmes_sim import commands
from planner import strategies
from planner.costs.context import PlanningContext
from planner.placement.ranks import assemble
from planner.placement.simulation import simulate_plan, step
from planner.request import Request, Wishes
from planner.space.shape import Shape
from sim.hardware.cluster import Cluster, Device, Fleet
from sim.hardware.topology import Topology
from sim.plan.plan import Plan

STAGES = REPLICAS = 8
GRADIENTS = 1.3e9 * 4 * 3 / 24
"""Bytes: 1.3 B parameters in fp32, 3 of 24 layers a stage."""
ACTIVATIONS = 2024 * 2048 * 2 * 61.035 / 2**30 * 1e9
"""Bytes as in the source, which takes GiB for GB and has 2024 tokens."""
CASES = ("0-datacenter", "1-spot", "2-universities", "3-regional", "4-worldwide")
INSIDE_DELAY = {"2-universities": 1e-3, "3-regional": 5e-3, "4-worldwide": 5e-3}
"""Delay in seconds between peers of a region, which a topology cannot express."""
GENETIC = {"0-datacenter": 3.4398, "1-spot": 43.5473, "2-universities": 16.0868, "3-regional": 34.8020, "4-worldwide": 49.2184}
"""Seconds, by this cost, of what DT-FM's own genetic search finds in 260 to 410 CPU seconds (run once, on two cores)."""

Group = tuple[Device, ...]
Groups = tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Pairs:
    """(delay in seconds, bytes/s) between any two peers of a case."""

    fleet: Fleet
    inside_delay: float

    def way(self, a: Device, b: Device) -> tuple[float, float]:
        """Inside a node the interconnect; inside a cluster the NIC; between clusters the link's share of a pair of peers."""
        here, there = self.fleet.cluster(a.cluster), self.fleet.cluster(b.cluster)
        if here.name != there.name:
            trunk = next(t for t in self.fleet.trunks if set(t.between) == {here.name, there.name})
            return trunk.latency, trunk.bandwidth / min(here.devices, there.devices)
        if a.node == b.node:
            return 0.0, here.node.intra_node.bandwidth
        return self.inside_delay, here.node.nics[0].bandwidth

    def gradients(self, a: Device, b: Device) -> float:
        """Seconds of a peer's exchange with one other of its group."""
        delay, rate = self.way(a, b)
        return 2 * (delay + GRADIENTS / (REPLICAS * rate))

    def activations(self, a: Device, b: Device) -> float:
        """Seconds of the activations from a peer to one of the next group."""
        delay, rate = self.way(a, b)
        return delay + ACTIVATIONS / rate


def load(case: str) -> tuple[Topology, Pairs]:
    """The topology of a case, and its pairs of peers."""
    topology = commands.load(f"peers/dtfm-{case}")
    return topology, Pairs(topology.fleet, INSIDE_DELAY.get(case, 0.0))


def cost(plan: Plan, pairs: Pairs) -> float:
    """DT-FM's cost of a plan of 8 stages and 8 replicas, with the plan's order of stages and pairs of peers."""
    ranks = [[plan.placement[plan.config.rank(0, j, i)] for j in range(REPLICAS)] for i in range(STAGES)]
    borders = (max(map(pairs.activations, one, other)) for one, other in itertools.pairwise(ranks))
    return _exchange(tuple(map(tuple, ranks)), pairs) + 2 * sum(borders)


def arranged(groups: Groups, pairs: Pairs) -> tuple[float, Groups]:
    """DT-FM's cost of unordered groups, and the groups in the order of stages and peers that has this cost."""
    borders = {key: matching(*key, pairs)[0] for key in itertools.combinations(groups, 2)}
    seconds, path = shortest_path(groups, borders)
    inner = [groups[path[0]]]
    for after in path[1:]:
        inner.append(matching(inner[-1], groups[after], pairs)[1])
    return _exchange(groups, pairs) + 2 * seconds, tuple(inner)


def _exchange(groups: Groups, pairs: Pairs) -> float:
    return max(sum(pairs.gradients(a, b) for b in group if b != a) for group in groups for a in group)


def matching(a: Group, b: Group, pairs: Pairs) -> tuple[float, Group]:
    """The bottleneck perfect matching of two groups: (seconds of its longest activation, the partner of each peer of `a`).

    Threshold method: the least time at which the pairs that take no longer contain a perfect matching, which augmenting paths
    find (Kuhn 1955). The groups must have equally many peers; AssertionError if `b` has fewer."""
    seconds = [[pairs.activations(x, y) for y in b] for x in a]
    for limit in sorted({value for row in seconds for value in row}):
        of: dict[int, int] = {}  # index in b -> index in a
        if all(_augment(i, seconds, limit, of, set()) for i in range(len(a))):
            partner = {i: j for j, i in of.items()}
            return limit, tuple(b[partner[i]] for i in range(len(a)))
    raise AssertionError("the longest pair allows every matching")


def _augment(i: int, seconds: list[list[float]], limit: float, of: dict[int, int], seen: set[int]) -> bool:
    for j, value in enumerate(seconds[i]):
        if value <= limit and j not in seen:
            seen.add(j)
            if j not in of or _augment(of[j], seconds, limit, of, seen):
                of[j] = i
                return True
    return False


def shortest_path(groups: Groups, borders: dict[tuple[Group, Group], float]) -> tuple[float, tuple[int, ...]]:
    """The shortest open path through all groups: (its length in seconds, the groups' indices in its order).

    `borders`: seconds between two groups, by the pair in which the group listed first is first. Dynamic programme over sets of
    groups (Held and Karp, J. SIAM 10(1), 1962), which takes 2^n n^2 steps. Of paths of equal length, the first in the order of
    indices."""
    n = len(groups)
    length = {(i, j): borders[groups[min(i, j)], groups[max(i, j)]] for i, j in itertools.permutations(range(n), 2)}
    best: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {(1 << i, i): (0.0, (i,)) for i in range(n)}
    for done in range(1, 1 << n):
        inside = [i for i in range(n) if done >> i & 1]
        for last, after in itertools.product(inside, set(range(n)).difference(inside)):
            seconds, path = best[done, last]
            found = seconds + length[last, after], (*path, after)
            key = done | 1 << after, after
            best[key] = min(best.get(key, found), found)
    return min(best[(1 << n) - 1, last] for last in range(n))


def units(fleet: Fleet) -> list[list[Group]]:
    """Units of close peers, those of the same size together; nodes of a cluster are interchangeable and stay in order."""
    by_size: dict[int, list[Group]] = {}
    for cluster in fleet.clusters:
        for unit in _units(cluster):
            by_size.setdefault(len(unit), []).append(unit)
    return list(by_size.values())


def _units(cluster: Cluster) -> list[Group]:
    nodes = [tuple(Device(cluster.name, n, i) for i in range(cluster.node.count)) for n in range(cluster.nodes)]
    return nodes if cluster.node.count > 1 else [tuple(itertools.chain(*nodes))]


def structured(fleet: Fleet) -> Iterator[Groups]:
    """Every structured layout (see above)."""
    for parts in itertools.product(*(list(_layouts(alike)) for alike in units(fleet))):
        yield tuple(itertools.chain(*parts))


def _layouts(alike: list[Group]) -> Iterator[Groups]:
    size = len(alike[0])
    for width in range(1, len(alike) + 1):
        if len(alike) % width == 0 and REPLICAS % width == 0 and width * size % REPLICAS == 0:
            each = REPLICAS // width
            for blocks in _blocks(alike, width):
                yield tuple(
                    tuple(peer for unit in block for peer in unit[start : start + each])
                    for block in blocks
                    for start in range(0, size, each)
                )


def _blocks(alike: list[Group], width: int) -> Iterator[list[list[Group]]]:
    """Divisions of units into blocks of `width`; only one if all units are in one cluster, because they are interchangeable."""
    if len({unit[0].cluster for unit in alike}) == 1:
        yield [alike[i : i + width] for i in range(0, len(alike), width)]
        return
    if not alike:
        yield []
        return
    for others in itertools.combinations(range(1, len(alike)), width - 1):
        rest = [unit for i, unit in enumerate(alike) if i and i not in others]
        for found in _blocks(rest, width) if rest else iter([[]]):
            yield [[alike[0], *(alike[i] for i in others)], *found]


def best(case: str) -> Plan:
    """The structured plan of least cost: 8 stages of 3 layers, in the order that has this cost."""
    topology, pairs = load(case)
    found = (arranged(layout, pairs) for layout in structured(topology.fleet))
    _, groups = min(found, key=lambda pair: pair[0])
    workload = commands.workload_of(topology)
    shape = Shape(1, REPLICAS, 1, "none", "1f1b", 1, 1)
    layers = (workload.model.layers // STAGES,) * STAGES
    return assemble(Request(topology, workload), shape, layers, tuple(itertools.chain(*groups)), "dtfm-structured")


@dataclass(frozen=True, slots=True)
class Row:
    """A case: DT-FM's cost (s) of the genetic search's groups, of the best structured plan, and of the `certified` plan with 8
    stages of 8 replicas; simulated step (s) of the last two; CPU seconds of the structured search."""

    case: str
    genetic: float
    structured: float
    certified: float
    structured_step_s: float
    certified_step_s: float
    seconds: float


def measure(time_limit: float = 5.0) -> list[Row]:
    """Rows of all five cases. `certified` does not use this cost, and the structured search does not use the simulator."""
    rows = []
    for case in CASES:
        topology, pairs = load(case)
        begun = time.process_time()
        plan = best(case)
        seconds = time.process_time() - begun
        wishes = Wishes(tp=1, pp=STAGES, dp=REPLICAS)
        request = Request(topology, commands.workload_of(topology), wishes, time_limit)
        ours = strategies.get("certified").plan(request, PlanningContext(request))
        costs = GENETIC[case], cost(plan, pairs), cost(ours, pairs)
        rows.append(Row(case, *costs, step(simulate_plan(plan)), step(ours), seconds))
    return rows
