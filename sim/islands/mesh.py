"""What it costs that islands leave and join: the exchange among those present, the ring rebuilt, and the live checkpoint.

Sources: INTELLECT-1 (arXiv 2412.01152, sections 2.4 and 2.5) and its framework prime (CloudEngineHub/prime de5b9317,
src/zeroband/comms.py and checkpoint.py)."""

from __future__ import annotations

import itertools
from collections.abc import Set

from sim.islands.exchange import Edges, ExchangeCost, Exchanges
from sim.islands.outer_timeline import Checkpoint
from sim.network.paths import Capacities, LinkName
from sim.plan.islands import IslandsPlan
from sim.units import Bytes, Seconds
from sim.workload.optimizers import MASTER, OPTIMIZERS

PROBE: Seconds = 1.0
"""Seconds in which an island measures the rate to one other island, before the order of the ring is chosen anew; it measures
one after the other (iperf -t 1 in `measure_bandwidth` of prime). What else rebuilding takes is not published; not counted."""


class ElasticMesh:
    """Costs of changes of the membership of the islands of a plan; each is computed once.

    `links`: all links that islands may send over."""

    def __init__(self, plan: IslandsPlan):
        self.plan, self.exchanges = plan, Exchanges(plan)
        self.edges = Edges(plan, "send_recv", 2)
        self.capacities = Capacities(plan.fleet)
        self._costs: dict[Set[int], ExchangeCost] = {}
        self._known: dict[tuple[int, int], tuple[Seconds, Checkpoint]] = {}
        pairs = itertools.permutations(range(len(plan.islands)), 2)
        found = dict.fromkeys(link for a, b in pairs for link in self.edges.edge(a, b)[0])
        found |= dict.fromkeys(link for link, _ in self.exchange(frozenset(range(len(plan.islands)))).use)
        self.links: tuple[LinkName, ...] = tuple(found)

    def exchange(self, present: Set[int]) -> ExchangeCost:
        """Cost of an exchange among the islands present."""
        if present not in self._costs:
            self._costs[present] = self.exchanges.cost(self.plan.sync, tuple(sorted(present)))
        return self._costs[present]

    def rebuild_s(self, islands: int) -> Seconds:
        """Seconds in which so many islands measure the rates between them; the order of the ring follows."""
        return PROBE * max(islands - 1, 0)

    def checkpoint(self, joiner: int, present: Set[int]) -> Checkpoint:
        """The live checkpoint for an island that joins, from the one of those present that sends it fastest."""
        return min((self._sent(source, joiner) for source in sorted(present)), key=lambda sent: sent[0])[1]

    def _sent(self, source: int, joiner: int) -> tuple[Seconds, Checkpoint]:
        """(seconds, the checkpoint) from one island to another."""
        if (source, joiner) not in self._known:
            use, latency = self.edges.edge(source, joiner)
            sent = Checkpoint(source, checkpoint_bytes(self.plan), tuple(use.items()), latency)
            self._known[source, joiner] = self.seconds(sent), sent
        return self._known[source, joiner]

    def seconds(self, sent: Checkpoint) -> Seconds:
        """Seconds of a live checkpoint on an idle network."""
        return sent.latency + sent.payload * max(weight / self.capacities(link) for link, weight in sent.use)


def checkpoint_bytes(plan: IslandsPlan) -> Bytes:
    """Bytes of a live checkpoint: fp32 weights, the state of the outer optimizer and the moments of the inner one, as prime
    sends them (16 bytes a parameter with DiLoCo and Adam).

    Where islands wait for their exchanges, the weights are those of the last exchange, which are not sent twice."""
    sync = plan.sync
    waits = not any(exchange.overlap for exchange in sync.exchanges)
    outer = max(MASTER, sync.outer_state_bytes) if waits else MASTER + sync.outer_state_bytes
    return plan.workload.trained_parameters * (outer + OPTIMIZERS[plan.workload.optimizer].moments)
