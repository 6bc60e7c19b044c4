"""Device groups of DT-FM: divide tensor-parallel groups into pipeline stages by their communication alone.

DT-FM (Yuan et al., arXiv 2206.01288, section 3): with latency a and bandwidth b between each two devices, divide them into pp
balanced groups of dp, and put these in the order of a pipeline, so that the sum of two costs is least:

DataP      the longest any device takes to exchange its share of the gradients G with its group:
           max over groups, devices i of a group: sum over its other devices j of 2 (a_ij + G / (dp b_ij))
PipelineP  the shortest open path over all groups, where going from group to group costs the longest message of the bottleneck
           perfect matching of their devices: 2 (a_ij + A / b_ij), A the activations of a replica's whole batch

The paper searches groups by a genetic algorithm with moves after Kernighan and Lin. Here, where links differ by node and by
cluster only, the least costly of three divisions is used: groups of neighbours inside clusters, where units that do not fill a
group are divided by Kernighan-Lin bisection; groups dealt over the nodes of their cluster, so that messages stay in the nodes;
groups dealt over all clusters. Matchings are flows between the clusters of two groups; the path orders groups of the same kind.
a and b are the latency and bandwidth of messages on our network, all units of two nodes sending at once. What the paper calls a
device is a unit here: a tensor-parallel group inside a node.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from planner.request import Request
from planner.space.shape import Shape
from planner.space.shapes import slot
from sim.analytic.plan_costs import messages_alpha_beta
from sim.errors import NoRoute
from sim.hardware.transport import common_transport
from sim.kernels.payloads import gradient_bytes, message_bytes
from sim.network.alpha_beta import AlphaBeta
from sim.network.paths import Capacities
from sim.units import Seconds

if TYPE_CHECKING:
    import networkx as nx

REFINED = 64
"""Maximum number of units without a whole group in their cluster that Kernighan-Lin bisection divides; more keep the order in
which they are listed (a guess); the graph of links grows with their number squared."""

Unit: TypeAlias = tuple[int, int, int]
"""A tensor-parallel group as (index of its cluster, node, index in the node)."""
Group: TypeAlias = tuple[Unit, ...]
"""The units of one pipeline stage: a data-parallel group."""
Flow: TypeAlias = Mapping[tuple[int, int], int]
"""(source cluster, target cluster) -> number of messages."""


class CommunicationModel:
    """DT-FM's communication costs of units under a shape with pp stages, and the division with the least cost."""

    def __init__(self, request: Request, capacities: Capacities, shape: Shape, pp: int):
        self.fleet, self.capacities, self.shape, self.pp = request.topology.fleet, capacities, shape, pp
        self.clusters = list(request.clusters())
        workload, config = request.workload, shape.config(request.workload, max(pp, 2))
        largest = math.ceil(workload.model.layers / pp)
        self.gradients = sum(nbytes for _, nbytes in gradient_bytes(workload, config, largest, False, False))
        self.activations = message_bytes(workload, config) * shape.microbatches(workload)
        self._links: dict[tuple[int, int, bool], AlphaBeta | None] = {}
        self._matchings: dict[object, tuple[Seconds, Flow]] = {}

    def division(self) -> tuple[Seconds, tuple[Group, ...]]:
        """(DataP + PipelineP, groups in pipeline order, units of one replica at one position) of the division with the least
        cost."""
        found = []
        for groups in self._divisions():
            ordered, path = in_order(groups, lambda a, b: self.matching(a, b)[0])
            found.append((max(map(self.exchange, groups)) + path, ordered))
        cost, ordered = min(found, key=lambda item: item[0])
        aligned = [ordered[0]]
        for group in ordered[1:]:
            aligned.append(matched(aligned[-1], group, self.matching(aligned[-1], group)[1]))
        return cost, tuple(aligned)

    def exchange(self, group: Group) -> Seconds:
        """DataP of a group: the longest any unit takes to exchange its share of the gradients with all others."""
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
        """(longest message, number of messages between each two clusters) of the bottleneck perfect matching of two groups.

        Messages inside a cluster stay inside its nodes where both groups have equally many units on each of these."""
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
        """Seconds 2 (a + nbytes / b) between units of two clusters, or inside a node; infinite where nothing joins them."""
        key = source, target, inside
        if key not in self._links:
            self._links[key] = self._alpha_beta(*key)
        found = self._links[key]
        return math.inf if found is None else 2 * found.seconds(nbytes)

    def _alpha_beta(self, source: int, target: int, inside: bool) -> AlphaBeta | None:
        """Latency and bandwidth between two units of a node alone, or between two nodes, all of whose units send at once."""
        tp, here, there = self.shape.tp, self.clusters[source], self.clusters[target]
        width = here.node.count // tp
        if inside:
            ends = [(0, 1)]
        else:
            ends = [(i, i + (width if source == target else 0)) for i in range(min(width, there.node.count // tp))]
        pairs = [pair for i, j in ends for pair in zip(slot(here, tp, i), slot(there, tp, j), strict=True)]
        try:
            chosen = tuple((a, b, common_transport(self.fleet, (a, b))[0]) for a, b in pairs)
            return messages_alpha_beta(self.fleet, chosen, self.capacities)
        except NoRoute:
            return None

    def _divisions(self) -> Iterator[tuple[Group, ...]]:
        """Three divisions: groups of neighbours, dealt over the nodes of their cluster, and dealt over all clusters."""
        size, listed = self.shape.slots, [self._units(index) for index in range(len(self.clusters))]
        for key in ((1, 2), (2, 1)):
            whole: list[Group] = []
            rest: list[Unit] = []
            for units in listed:
                units = sorted(units, key=lambda unit: (unit[key[0]], unit[key[1]]))
                full = len(units) - len(units) % size
                whole += consecutive(units[:full], size)
                rest += units[full:]
            yield (*whole, *self._divided(rest[: len(rest) - len(rest) % size]))[: self.pp]
        every = list(itertools.chain.from_iterable(listed))
        yield tuple(tuple(every[stage : self.pp * size : self.pp]) for stage in range(self.pp))

    def _units(self, index: int) -> list[Unit]:
        cluster = self.clusters[index]
        return [(index, node, i) for node in range(cluster.nodes) for i in range(cluster.node.count // self.shape.tp)]

    def _divided(self, units: list[Unit]) -> tuple[Group, ...]:
        """Units that fill no group in their cluster, in groups with little communication (`refined`)."""
        groups, nbytes = consecutive(units, self.shape.slots), self.gradients / self.shape.slots
        if len(groups) < 2 or len(units) > REFINED:
            return groups
        import networkx as nx  # its import takes longer than many searches take

        links: nx.Graph[Unit] = nx.Graph()
        for a, b in itertools.combinations(units, 2):
            links.add_edge(a, b, weight=self.link(a[0], b[0], a[:2] == b[:2], nbytes))
        return refined(links, groups)


def consecutive(units: Sequence[Unit], size: int) -> tuple[Group, ...]:
    """Groups of `size` units each, in the order given."""
    return tuple(tuple(units[first : first + size]) for first in range(0, len(units), size))


def refined(links: nx.Graph[Unit], groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Groups of the same sizes with a small sum of edge weights (seconds) inside: local search.

    The union of each two groups is divided again by the Kernighan-Lin bisection until no pair improves. The bisection minimises
    the weight of the cut; weights are negated, so that heavy links are cut and light ones stay inside."""
    import networkx as nx

    def negative(a: Unit, b: Unit, data: Mapping[str, float]) -> float:
        return -data["weight"]

    found, before = list(groups), None
    while found != before:
        before = list(found)
        for i, j in itertools.combinations(range(len(found)), 2):
            both = links.subgraph((*found[i], *found[j]))
            halves = nx.community.kernighan_lin_bisection(both, (set(found[i]), set(found[j])), weight=negative, seed=0)
            sides = [tuple(sorted(half)) for half in halves]
            now, then = (sum(_inside(links, group) for group in pair) for pair in (sides, (found[i], found[j])))
            if now < then * (1 - 1e-12):
                found[i], found[j] = sides
    return tuple(found)


def _inside(links: nx.Graph[Unit], group: Group) -> Seconds:
    return sum(float(links.edges[a, b]["weight"]) for a, b in itertools.combinations(group, 2))


def bottleneck(
    here: Mapping[int, int], there: Mapping[int, int], prices: Mapping[tuple[int, int], Seconds]
) -> tuple[Seconds, Flow]:
    """(longest message, number of messages between each two clusters) of the bottleneck perfect matching of two groups.

    `here` and `there` are the numbers of units by cluster, `prices` the seconds of a message. Threshold method: the least price
    at which the flow network of all pairs that cost no more carries all units."""
    import networkx as nx

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

    Groups with equally many units of each cluster are of one kind and follow one another, those on the same nodes side by side.
    Of up to six kinds every order is tried; of more, each kind is inserted where it costs least."""
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


def matched(before: Group, group: Group, flow: Flow) -> Group:
    """The units of a group, each at the position of its match in the group `before`, inside the same node if possible.

    `flow` is the number of matches between each two clusters."""
    left, taken = dict(flow), set[Unit]()
    found: list[Unit | None] = [None] * len(before)
    clusters = sorted({unit[0] for unit in group})
    for width in (2, 1):  # matches inside a node first, then between clusters
        free: dict[tuple[int, ...], list[Unit]] = {}
        for other in reversed(group):
            if other not in taken:
                free.setdefault(other[:width], []).append(other)
        for i, unit in enumerate(before):
            keys = [unit[:2]] if width == 2 else [(cluster,) for cluster in clusters]
            key = next((key for key in keys if free.get(key) and left[unit[0], key[0]]), None)
            if found[i] is None and key is not None:
                found[i] = target = free[key].pop()
                left[unit[0], target[0]] -= 1
                taken.add(target)
    return tuple(unit for unit in found if unit is not None)
