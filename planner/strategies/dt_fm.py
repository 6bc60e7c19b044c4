"""dt_fm: devices divided into stages by what they have to say to each other; blind to how fast they compute.

DT-FM (Yuan et al., arXiv 2206.01288, section 3): with latency a and bandwidth b between each two devices, divide them into pp
balanced groups of dp, and put these in the order of a pipeline, so that the sum of two costs is least:

DataP      the longest any device takes to exchange its share of the gradients G with its group:
           max over groups, devices i of a group: sum over its other devices j of 2 (a_ij + G / (dp b_ij))
PipelineP  the shortest open path over all groups, where going from group to group costs the longest message of the bottleneck
           perfect matching of their devices: 2 (a_ij + A / b_ij), A the activations of a replica's whole batch

The paper searches groups by a genetic algorithm with moves after Kernighan and Lin. Here, where links are alike by node and by
cluster, three layouts are made and the one of least cost is taken: groups of neighbours inside clusters, what does not fill a
group there divided by Kernighan and Lin's bisection; groups dealt over the nodes of their cluster, so that messages stay in the
nodes; groups dealt over all clusters. Matchings are flows between the clusters of two groups; the path orders groups that are
made alike. a and b are the paces of messages on our network, all units of two nodes speaking at once. What the paper calls a
device is a tensor-parallel group inside a node.

The paper is given its degrees; here they are tuned as for megatron: ranked by compute on the slowest device plus the two costs,
the first few then by their closed form, the best of these by simulation. Layers are even, all devices have a part in the plan
but those that do not make a whole group (or a layer's stage). Compression and the scheduling of tasklets are left out."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import networkx as nx

from planner.costs.context import PlanningContext
from planner.placement.ranks import assemble
from planner.placement.simulation import fastest
from planner.request import Request
from planner.space.shapes import Shape, shapes, slot, slots
from sim.analytic.costs import StageCosts, messages_pace
from sim.errors import Infeasible, PlanError
from sim.hardware.cluster import Cluster, Device, common_transport
from sim.kernels import memory
from sim.kernels.lowering import gradient_bytes, message_bytes
from sim.network.collective_costs import CollectiveCosts
from sim.network.replica_rows import Rows
from sim.network.routes import AlphaBeta
from sim.plan.plan import Plan
from sim.units import Seconds

DIVIDED = 48
RANKED = 12
PLAYED = 3
DEVICES = 400_000
RANKS = 12_000
"""So many shapes are divided into groups (of so many devices in all), so many of their plans built (of so many ranks in all),
so many simulated; but one at least."""
REFINED = 64
"""Kernighan and Lin divide at most so many devices that fill no group in their cluster; more stay as they are listed."""

Unit: TypeAlias = tuple[int, int, int]
"""A tensor-parallel group: (place of its cluster, node, place in the node)."""
Group: TypeAlias = tuple[Unit, ...]
Flow: TypeAlias = Mapping[tuple[int, int], int]


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest of the plans whose groups say least. Raises Infeasible where none fits."""
    deadline = time.monotonic() + request.time_limit
    tuned = sorted(_tuned(request, context), key=lambda item: item[0])
    ranked: list[tuple[Seconds, Shape, tuple[Group, ...]]] = []
    divided: dict[tuple[int, ...], tuple[Seconds, tuple[Group, ...]]] = {}
    for compute, shape, pp in tuned[: max(1, min(DIVIDED, DEVICES // request.topology.fleet.devices))]:
        if ranked and time.monotonic() > deadline:
            break
        key = shape.tp, shape.dp, shape.cp, shape.microbatch_size, pp
        if key not in divided:
            divided[key] = Web(request, context, shape, pp).division()
        said, groups = divided[key]
        ranked.append((compute + said, shape, groups))
    ranked.sort(key=lambda item: item[0])
    built = max(1, min(RANKED, RANKS // request.topology.fleet.devices))
    best = fastest((functools.partial(_build, request, shape, groups) for _, shape, groups in ranked), built, PLAYED)
    if best is None:
        raise Infeasible("dt_fm: no layout of even layers over balanced groups of devices fits the memory and the batch")
    return best


def _tuned(request: Request, context: PlanningContext) -> Iterator[tuple[Seconds, Shape, int]]:
    """(seconds of compute as if all devices were the slowest, shape, pp) of even layers over all devices that fit memory."""
    clusters, layers = list(request.clusters()), request.workload.model.layers
    slowest: dict[tuple[int | str, ...], Seconds] = {}
    for shape in shapes(request, across=True):
        held = [cluster for cluster in clusters if cluster.node.count >= shape.tp]
        most = min(sum(slots(cluster, shape.tp) for cluster in held) // shape.slots, layers // shape.vpp)
        pp, m = request.wishes.pp or most, shape.microbatches(request.workload)
        if not 1 <= pp <= most or (shape.vpp > 1 and m % pp):
            continue
        largest, config = math.ceil(layers / pp), shape.config(request.workload, pp)
        kept = m if shape.schedule == "gpipe" else min(m, pp)
        needed = memory.place_bytes(request.workload, config, largest, kept * shape.vpp, True, pp == 1)
        if needed + memory.outside_torch(config) > min(cluster.node.device.memory for cluster in held):
            continue
        key = shape.tp, shape.cp, shape.microbatch_size, shape.recompute
        if key not in slowest:
            slowest[key] = max(_layer_seconds(request, context, shape, cluster) for cluster in held)
        yield (m + (pp - 1) / shape.vpp) * largest * slowest[key], shape, pp


def _layer_seconds(request: Request, context: PlanningContext, shape: Shape, cluster: Cluster) -> Seconds:
    """Seconds of a microbatch on a layer, forward and backward, with its tensor-parallel collectives."""
    config = shape.config(request.workload, 2)
    rows = Rows.of(request.topology.fleet, (slot(cluster, shape.tp, 0),))
    paces = CollectiveCosts(request.topology.fleet, config, rows, context.fleets.capacities)
    two, one = (StageCosts(request.workload, config, paces).work(layers, False, False) for layers in (2, 1))
    return sum(two) - sum(one)


def _build(request: Request, shape: Shape, groups: tuple[Group, ...]) -> Plan:
    clusters = list(request.clusters())
    devices: list[Device] = []
    for cluster, node, place in itertools.chain.from_iterable(groups):
        per_node = clusters[cluster].node.count // shape.tp
        devices += slot(clusters[cluster], shape.tp, node * per_node + place)
    layers, pp = request.workload.model.layers, len(groups)
    even = tuple(layers * (place + 1) // pp - layers * place // pp for place in range(pp))
    return assemble(request, shape, even, tuple(devices), "dt_fm")


class Web:
    """What units say to each other under a shape: the paper's costs, and the division of least cost."""

    def __init__(self, request: Request, context: PlanningContext, shape: Shape, pp: int):
        self.fleet, self.capacities, self.shape, self.pp = request.topology.fleet, context.fleets.capacities, shape, pp
        self.clusters = list(request.clusters())
        workload, config = request.workload, shape.config(request.workload, max(pp, 2))
        largest = math.ceil(workload.model.layers / pp)
        self.gradients = sum(nbytes for _, nbytes in gradient_bytes(workload, config, largest, False, False))
        self.activations = message_bytes(workload, config) * shape.microbatches(workload)
        self._paces: dict[tuple[int, int, bool], AlphaBeta | None] = {}
        self._matchings: dict[object, tuple[Seconds, Flow]] = {}

    def division(self) -> tuple[Seconds, tuple[Group, ...]]:
        """(DataP + PipelineP, groups in pipeline order with their replicas in line) of the layout of least cost."""
        found = []
        for groups in self._layouts():
            ordered, path = in_order(groups, lambda a, b: self.matching(a, b)[0])
            found.append((max(map(self.exchange, groups)) + path, ordered))
        cost, ordered = min(found, key=lambda item: item[0])
        lines = [ordered[0]]
        for group in ordered[1:]:
            lines.append(in_line(lines[-1], group, self.matching(lines[-1], group)[1]))
        return cost, tuple(lines)

    def exchange(self, group: Group) -> Seconds:
        """The longest any unit of a group takes for its share of the gradients with all others."""
        nodes, nbytes = Counter(unit[:2] for unit in group), self.gradients / len(group)
        clusters = Counter(unit[0] for unit in group)
        longest = 0.0
        for (cluster, _), here in nodes.items():
            others = clusters - Counter({cluster: here})
            seconds = (here - 1) * self.link(cluster, cluster, True, nbytes) if here > 1 else 0.0
            seconds += sum(n * self.link(cluster, other, False, nbytes) for other, n in others.items())
            longest = max(longest, seconds)
        return longest

    def matching(self, before: Group, after: Group) -> tuple[Seconds, Flow]:
        """(longest message, units that go from cluster to cluster) of the bottleneck perfect matching of two groups.

        Inside a cluster messages stay in the nodes where both groups have equally many units on each of them."""
        nodes = [Counter(unit[:2] for unit in group) for group in (before, after)]
        here, there = (Counter(unit[0] for unit in group) for group in (before, after))
        inside = frozenset(
            c
            for c in here
            if {n: k for n, k in nodes[0].items() if n[0] == c} == {n: k for n, k in nodes[1].items() if n[0] == c}
        )
        key = tuple(sorted(here.items())), tuple(sorted(there.items())), inside
        if key not in self._matchings:
            prices = {(a, b): self.link(a, b, a == b and a in inside, self.activations) for a in here for b in there}
            self._matchings[key] = bottleneck(here, there, prices)
        return self._matchings[key]

    def link(self, source: int, target: int, inside: bool, nbytes: float) -> Seconds:
        """2 (a + nbytes / b) between units of two clusters, or inside a node; infinite where nothing joins them."""
        key = source, target, inside
        if key not in self._paces:
            self._paces[key] = self._pace(*key)
        found = self._paces[key]
        return math.inf if found is None else 2 * found.seconds(nbytes)

    def _pace(self, source: int, target: int, inside: bool) -> AlphaBeta | None:
        """Two units of a node alone; those of two nodes all at once, as groups side by side are when they speak."""
        tp, here, there = self.shape.tp, self.clusters[source], self.clusters[target]
        width = here.node.count // tp
        if inside:
            ends = [(0, 1)]
        else:
            ends = [(i, i + (width if source == target else 0)) for i in range(min(width, there.node.count // tp))]
        pairs = [pair for i, j in ends for pair in zip(slot(here, tp, i), slot(there, tp, j), strict=True)]
        try:
            chosen = tuple((a, b, common_transport(self.fleet, (a, b))[0]) for a, b in pairs)
            return messages_pace(self.fleet, chosen, self.capacities)
        except PlanError:
            return None

    def _layouts(self) -> Iterator[tuple[Group, ...]]:
        """Units in groups: of neighbours, dealt over the nodes of their cluster, dealt over everything."""
        size, listed = self.shape.slots, [self._units(index) for index in range(len(self.clusters))]
        for key in ((1, 2), (2, 1)):
            whole: list[Group] = []
            rest: list[Unit] = []
            for units in listed:
                units = sorted(units, key=lambda unit: (unit[key[0]], unit[key[1]]))
                full = len(units) - len(units) % size
                whole += cut(units[:full], size)
                rest += units[full:]
            yield (*whole, *self._divided(rest[: len(rest) - len(rest) % size]))[: self.pp]
        every = list(itertools.chain.from_iterable(listed))
        yield tuple(tuple(every[place : self.pp * size : self.pp]) for place in range(self.pp))

    def _units(self, index: int) -> list[Unit]:
        cluster = self.clusters[index]
        return [(index, node, place) for node in range(cluster.nodes) for place in range(cluster.node.count // self.shape.tp)]

    def _divided(self, units: list[Unit]) -> tuple[Group, ...]:
        """Units that fill no group in their cluster, in groups that say little."""
        groups, nbytes = cut(units, self.shape.slots), self.gradients / self.shape.slots
        if len(groups) < 2 or len(units) > REFINED:
            return groups
        web: nx.Graph[Unit] = nx.Graph()
        for a, b in itertools.combinations(units, 2):
            web.add_edge(a, b, weight=self.link(a[0], b[0], a[:2] == b[:2], nbytes))
        return refined(web, groups)


def cut(units: Sequence[Unit], size: int) -> tuple[Group, ...]:
    """Groups of so many units, in the order given."""
    return tuple(tuple(units[first : first + size]) for first in range(0, len(units), size))


def refined(web: nx.Graph[Unit], groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Groups whose sizes stay and whose weight inside is small: Kernighan and Lin's bisection of each two, until none helps.

    What is cut is made heavy, so that the light links stay inside."""

    def negative(a: Unit, b: Unit, data: Mapping[str, float]) -> float:
        return -data["weight"]

    found, before = list(groups), None
    while found != before:
        before = list(found)
        for i, j in itertools.combinations(range(len(found)), 2):
            both = web.subgraph((*found[i], *found[j]))
            halves = nx.community.kernighan_lin_bisection(both, (set(found[i]), set(found[j])), weight=negative, seed=0)
            sides = [tuple(sorted(half)) for half in halves]
            now, then = (sum(_inside(web, group) for group in pair) for pair in (sides, (found[i], found[j])))
            if now < then * (1 - 1e-12):
                found[i], found[j] = sides
    return tuple(found)


def _inside(web: nx.Graph[Unit], group: Group) -> Seconds:
    return sum(float(web.edges[a, b]["weight"]) for a, b in itertools.combinations(group, 2))


def bottleneck(
    here: Mapping[int, int], there: Mapping[int, int], prices: Mapping[tuple[int, int], Seconds]
) -> tuple[Seconds, Flow]:
    """(longest message, how many go from cluster to cluster) of a perfect matching of units given as numbers by cluster.

    The least price at which the network of pairs that cost no more carries all units."""
    size = sum(here.values())
    for limit in sorted(set(prices.values())):
        pairs: nx.DiGraph[object] = nx.DiGraph()
        for cluster, number in here.items():
            pairs.add_edge("from", ("here", cluster), capacity=number)
        for cluster, number in there.items():
            pairs.add_edge(("there", cluster), "to", capacity=number)
        for (a, b), price in prices.items():
            if price <= limit:
                pairs.add_edge(("here", a), ("there", b), capacity=size)
        carried, flow = nx.maximum_flow(pairs, "from", "to")
        if carried == size:
            return limit, {(a, b): flow["here", a].get(("there", b), 0) for a, b in prices}
    raise AssertionError("all pairs together carry everything")


def in_order(groups: tuple[Group, ...], price: Callable[[Group, Group], Seconds]) -> tuple[tuple[Group, ...], Seconds]:
    """Groups along the cheapest open path, and its cost.

    Groups of equally many units of each cluster stand one after the other, those on the same nodes next to each other. Of up to
    six such kinds every order is tried, else each kind is put where it costs least."""
    kinds: dict[object, list[Group]] = {}
    for group in sorted(groups, key=lambda group: sorted(unit[:2] for unit in group)):
        kinds.setdefault(tuple(sorted(Counter(unit[0] for unit in group).items())), []).append(group)

    def path(order: Sequence[list[Group]]) -> Seconds:
        return sum(price(a[-1], b[0]) for a, b in itertools.pairwise(order))

    blocks = list(kinds.values())
    if len(blocks) <= 6:
        best: Sequence[list[Group]] = min(itertools.permutations(blocks), key=path)
    else:
        best = []
        for block in blocks:
            best = min(([*best[:i], block, *best[i:]] for i in range(len(best) + 1)), key=path)
    ordered = tuple(itertools.chain.from_iterable(best))
    return ordered, sum(price(a, b) for a, b in itertools.pairwise(ordered))


def in_line(before: Group, group: Group, flow: Flow) -> Group:
    """The units of a group, each at the place of the unit before it that it is matched with: inside its node if it can be."""
    left, taken = dict(flow), set[Unit]()
    found: list[Unit | None] = [None] * len(before)
    clusters = sorted({unit[0] for unit in group})
    for width in (2, 1):  # those of a node, then those of a cluster
        free: dict[tuple[int, ...], list[Unit]] = {}
        for other in reversed(group):
            if other not in taken:
                free.setdefault(other[:width], []).append(other)
        for place, unit in enumerate(before):
            keys = [unit[:2]] if width == 2 else [(cluster,) for cluster in clusters]
            key = next((key for key in keys if free.get(key) and left[unit[0], key[0]]), None)
            if found[place] is None and key is not None:
                found[place] = target = free[key].pop()
                left[unit[0], target[0]] -= 1
                taken.add(target)
    return tuple(unit for unit in found if unit is not None)
