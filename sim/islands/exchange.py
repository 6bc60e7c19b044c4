"""Exchanges between islands on the network: the links that they load, and their seconds.

Corresponding ranks of the islands form rings, side by side: each ring exchanges what its ranks have in common of the parameters
(`sim.islands.parameter_shares`). An all_reduce sends 2 (n - 1) / n of the payload from each of n islands to the next, an
all_gather n - 1 of it. Layers are exchanged one after the other, so that each pays the latency of a whole ring, as prime does
(CloudEngineHub/prime de5b9317, src/zeroband/diloco.py: a bucket for each layer, blocking). The order of the ring is the one
that takes least time, as INTELLECT-1 chose it from measured rates (arXiv 2412.01152, section 2.5)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from sim import aggregation
from sim.hardware.cluster import Device
from sim.hardware.transport import common_transport
from sim.islands.parameter_shares import Part, common, largest_share, parts
from sim.network.alpha_beta import group_costs
from sim.network.paths import Capacities, End, LinkName, Path, Traffic, path
from sim.network.protocols import link_specs, offered
from sim.plan.derived_groups import gradient_groups
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.sync import Sync, get
from sim.units import GIGA, Bytes, BytesPerSecond, Seconds

MOST_ORDERS = 7
"""Number of islands up to which all orders of the ring are tried: 360 for 7."""
ENDS = 2
"""Embedding and head, which are exchanged beside the layers."""
HOST_RATE: BytesPerSecond = 5 * GIGA
"""Bytes/s that the host reads or writes for one rank in an outer update. INTELLECT-1 says that the outer gradient and the outer
optimizer took 5 to 10 s (arXiv 2412.01152, section 3.2); for 8 ranks of a node with 10.2 billion parameters that is 3.6 to 7
GB/s with the passes of `sim.sync.diloco`. One source, so nearly a guess."""


@dataclass(frozen=True, slots=True)
class ExchangeCost:
    """Cost of the exchange of all parameters on an idle network.

    order     islands in the order of the ring
    nic       NIC type between islands
    payload   bytes of the parameters as they are sent, before the factor of the collective
    use       bytes on each link for each byte of the payload, over the efficiency of the link
    latency   seconds of the latencies of an exchange of all layers, one after the other
    handling  seconds in which the busiest rank compresses and decompresses, while values travel
    update    seconds of the outer update, and of the gathering of its result inside the islands, after the exchange"""

    order: tuple[int, ...]
    nic: str
    payload: Bytes
    use: tuple[tuple[LinkName, float], ...]
    latency: Seconds
    handling: Seconds
    update: Seconds

    def seconds(self, capacities: Capacities, share: float = 1.0) -> Seconds:
        """Seconds of an exchange of a share of the parameters, without the update."""
        if not self.payload:
            return 0.0
        slowest = max(weight / capacities(link) for link, weight in self.use)
        return share * max(self.latency + self.payload * slowest, self.handling)


NOTHING = ExchangeCost((), "", 0.0, (), 0.0, 0.0, 0.0)
"""The cost where islands exchange nothing."""


def exchange_cost(plan: IslandsPlan) -> ExchangeCost:
    """Cost of an exchange of all parameters between the islands of a plan. Raises NoRoute if nothing joins the islands."""
    return Exchanges(plan).cost(plan.sync)


class Exchanges:
    """Costs of exchanges between the islands of a plan under several sync strategies; the rings of each are found once, and
    one cost for all that differ in inner steps, fragments and overlap."""

    def __init__(self, plan: IslandsPlan):
        self.plan = plan
        self._costs: dict[tuple[str, str, str, tuple[int, ...]], ExchangeCost] = {}
        self._rings: dict[tuple[str, int], Edges] = {}
        self._orders: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}

    def cost(self, sync: Sync, islands: tuple[int, ...] | None = None) -> ExchangeCost:
        """Cost of an exchange of all parameters under a sync strategy, between all islands or those of some indices; one alone
        has its outer update only. Raises NoRoute if nothing joins the islands."""
        if not sync.exchanges:
            return NOTHING
        islands = islands or tuple(range(len(self.plan.islands)))
        key = sync.strategy, sync.compression, sync.aggregation, islands
        if key not in self._costs:
            self._costs[key] = self._cost(sync, islands)
        return self._costs[key]

    def _cost(self, sync: Sync, islands: tuple[int, ...]) -> ExchangeCost:
        n, workload = len(islands), self.plan.workload
        handling = max(_handling(self.plan.islands[index], sync) for index in islands)
        update = max(_update(self.plan.islands[index], sync, n) for index in islands)
        if n == 1:
            return ExchangeCost(islands, "", 0.0, (), 0.0, 0.0, update)
        operation, factor = ("all_gather", n - 1.0) if sync.gathers else ("all_reduce", 2 * (n - 1) / n)
        if (operation, n) not in self._rings:
            self._rings[operation, n] = Edges(self.plan, operation, n)
        rings = self._rings[operation, n]
        if (operation, islands) not in self._orders:
            self._orders[operation, islands] = rings.best_order(islands)
        order = self._orders[operation, islands]
        use, latency = rings.around(order)
        return ExchangeCost(
            order=order,
            nic=rings.nic,
            payload=workload.trained_parameters * sync.bytes_per_parameter(workload.model),
            use=tuple((link, weight * factor) for link, weight in use.items()),
            latency=(workload.model.layers + ENDS) * latency * factor,
            handling=handling,
            update=update,
        )


class Edges:
    """What corresponding ranks of two islands send each other, in rings of so many `islands` or as messages ("send_recv")."""

    def __init__(self, plan: IslandsPlan, operation: str, islands: int):
        self.plan, self.operation, self.count = plan, operation, islands
        self.parts: list[tuple[Part, ...]] = [parts(island) for island in plan.islands]
        hosts = {(d.cluster, d.node): d for island in plan.islands for d in island.placement}
        self.nic, _ = common_transport(plan.fleet, tuple(hosts.values()))
        names = {(cluster, False) for cluster, _ in hosts}
        nic = "" if self.nic == "intra_node" else self.nic
        self.protocol = offered(link_specs(plan.fleet, names, nic), operation, False, False)[-1]
        self._edges: dict[tuple[int, int], tuple[dict[LinkName, float], Seconds]] = {}
        self._between: dict[tuple[int, int], float] = {}
        self._capacities = Capacities(plan.fleet)

    def edge(self, a: int, b: int) -> tuple[dict[LinkName, float], Seconds]:
        """(bytes on each link for each byte of the parameters that travel from island a to island b, longest latency)."""
        if (a, b) not in self._edges:
            use: dict[LinkName, float] = {}
            latency = 0.0
            source, target = self.plan.islands[a], self.plan.islands[b]
            for pair in common(self.parts[a], self.parts[b]):
                found = self._path(source.placement[pair.source], target.placement[pair.target])
                latency = max(latency, found.latency + found.overhead)
                for link, weight in found.use:
                    use[link] = use.get(link, 0.0) + weight * pair.share
            self._edges[a, b] = use, latency
        return self._edges[a, b]

    def _path(self, source: Device, target: Device) -> Path:
        traffic = Traffic(self.nic, self.operation, 1, self.count, self.protocol, self.operation != "send_recv")
        return path(self.plan.fleet, End(source, (source.index,)), End(target, (target.index,)), traffic)

    def around(self, order: tuple[int, ...]) -> tuple[dict[LinkName, float], Seconds]:
        """(bytes on each link for each byte on each edge, sum of latencies) of the rings in one order of the islands."""
        use: dict[LinkName, float] = {}
        latency = 0.0
        for a, b in itertools.pairwise((*order, order[0])):
            own, late = self.edge(a, b)
            latency += late
            for link, weight in own.items():
                use[link] = use.get(link, 0.0) + weight
        return use, latency

    def best_order(self, islands: tuple[int, ...]) -> tuple[int, ...]:
        """The order whose busiest link is fastest, then the one of least latency; the given order among equal ones.

        With more than `MOST_ORDERS` islands: a greedy tour of the seconds between pairs."""
        n, first = len(islands), islands[0]
        if n <= MOST_ORDERS:
            orders = ((first, *rest) for rest in itertools.permutations(islands[1:]) if n <= 2 or rest[0] < rest[-1])
            return min(orders, key=self._cost)
        import networkx as nx  # takes longer than most commands need otherwise

        graph: nx.Graph[int] = nx.Graph()
        for pair in itertools.combinations(islands, 2):
            if pair not in self._between:
                self._between[pair] = self._cost(pair)[0]
            graph.add_edge(*pair, weight=self._between[pair])
        tour = tuple(nx.approximation.greedy_tsp(graph, source=first)[:-1])
        return min(islands, tour, key=self._cost)

    def _cost(self, order: tuple[int, ...]) -> tuple[float, float]:
        """(seconds of a byte on the busiest link, seconds of latencies) of the rings in one order, without rounding errors."""
        use, latency = self.around(order)
        slowest = max(weight / self._capacities(link) for link, weight in use.items())
        return float(f"{slowest:.9g}"), float(f"{latency:.9g}")


def _handling(plan: Plan, sync: Sync) -> Seconds:
    """Seconds in which the rank with most parameters compresses and decompresses all of them."""
    return sync.compression_passes * _value_bytes(plan) / _update_rate(plan, sync)


def _update(plan: Plan, sync: Sync, islands: int) -> Seconds:
    """Seconds of the outer update of all parameters on the rank with most of them: copies to and from the host, the passes of
    the strategy and the aggregation, and the gathering of the new weights where replicas hold all of them (ZeRO 0)."""
    passes = get(sync.strategy).PASSES + aggregation.get(sync.aggregation).passes(islands)
    seconds = passes * _value_bytes(plan) / _update_rate(plan, sync)
    if get(sync.strategy).OUTER != "step":
        slowest = min(plan.fleet.spec(device).host_bandwidth for device in plan.placement)
        seconds += 2 * _value_bytes(plan) / slowest if slowest else 0.0
    return seconds + _gather(plan)


def _value_bytes(plan: Plan) -> Bytes:
    """Bytes of the fp32 values of the parameters that the rank with most of them has."""
    return 4.0 * plan.workload.trained_parameters * largest_share(plan)


def _update_rate(plan: Plan, sync: Sync) -> BytesPerSecond:
    """Bytes/s of elementwise work: on the device for gradients of a step, on the host where it keeps the outer state."""
    if get(sync.strategy).OUTER != "step":
        return HOST_RATE
    specs = plan.specs
    return min(spec.memory_bandwidth * spec.elementwise_efficiency for spec in specs)


def _gather(plan: Plan) -> Seconds:
    """Seconds of the all_gather of updated weights, or of summed gradients, among replicas that hold all of them; 0 where ZeRO
    gathers weights in each step anyway."""
    if plan.config.zero_stage or plan.config.most_dp_cp == 1:
        return 0.0
    capacities, slowest = Capacities(plan.fleet), 0.0
    for pp_rank in range(plan.config.pp):
        own = range(plan.config.first_rank(pp_rank), plan.config.first_rank(pp_rank + 1))
        groups = tuple(group for group in gradient_groups(plan) if group.kind == "dp" and group.ranks[0] in own)
        share = sum(part.end - part.begin for part in parts(plan) if part.rank in own) / plan.config.tp_of(pp_rank)
        nbytes = 4.0 * plan.workload.trained_parameters * share
        if not groups:
            continue
        slowest = max(slowest, min(one.cost.seconds(nbytes) for one in group_costs(plan, groups, "all_gather", capacities)))
    return slowest
