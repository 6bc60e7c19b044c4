"""Exchanges of unequal shares: with equal ones they are the all_to_all of the simulator; by hand on two nodes."""

from __future__ import annotations

import numpy as np
import pytest

from sim.engine.carriers import carriers_of
from sim.hardware.cluster import Trunk
from sim.network.paths import Capacities
from sim.network.token_exchange import token_exchange
from sim.plan.plan import Plan
from tests import builders
from tests.builders import cluster, fleet, nic, wire
from tests.sim.context_and_experts import EXPERTS, nodes

LARGE = {"experts": 16, "experts_per_token": 2, "ffn_hidden": 96}


def two_clusters() -> Plan:
    """Two clusters of two nodes, joined by a trunk of Ethernet."""
    nics = (nic("infiniband", 1e10, 2), nic("ethernet", 1e9))
    sides = (cluster(name, nodes=2, devices=4, nics=nics, intra_node=wire(bandwidth=1e11)) for name in ("a", "b"))
    machines = fleet(*sides, trunks=(Trunk(("a", "b"), "ethernet", 1.5e9, 1e-3),))
    return builders.plan(machines, dp=16, ep=16, shape=LARGE)


@pytest.mark.parametrize(
    "plan",
    [
        nodes(dp=16, ep=16, shape=LARGE),
        nodes(dp=16, ep=4, shape=LARGE),
        nodes(dp=16, ep=2, shape=LARGE),
        nodes(tp=2, dp=8, ep=8, etp=1, sequence_parallel=True, shape=LARGE),
        nodes(tp=2, dp=8, ep=4, sequence_parallel=True, shape=LARGE),
        two_clusters(),
    ],
    ids=["4 nodes", "1 node", "pairs", "etp 1", "tp 2", "2 clusters"],
)
def test_equal_shares_take_as_long_as_the_all_to_all_of_the_engine(plan: Plan) -> None:
    carriers = {key: carrier for key, carrier in carriers_of(plan).items() if key[0] == "ep"}
    groups = [group for group in plan.groups if group.kind == "ep"]
    block = [group for group in groups if plan.config.coordinates(group.ranks[0])[1] // plan.config.expert_rows == 0]
    devices = tuple(tuple(plan.placement[rank] for rank in group.ranks) for group in block)
    exchange = token_exchange(plan.fleet, devices, block[0].nic)
    ranks = len(devices[0])
    even = np.full((ranks, ranks), 1e6 / ranks)
    carrier = carriers["ep", min(block[0].ranks), "all_to_all"]
    assert exchange.seconds(even) == pytest.approx(1e6 * carrier.paces[-1].per_byte, rel=1e-9)


def test_only_what_is_sent_loads_links() -> None:
    """Ranks 0 to 3 are on one node, 4 to 7 on another: rank 0 sends to rank 1 over ports, to rank 4 over the NIC."""
    plan = nodes(dp=8, ep=8, count=2, shape=LARGE | EXPERTS | {"experts": 16})
    devices = (tuple(plan.placement),)
    exchange = token_exchange(plan.fleet, devices, "infiniband")
    sent = np.zeros((8, 8))
    sent[0, 1] = 1e6
    inside = {link[0] for link, load in zip(exchange.links, exchange.loads(sent), strict=True) if load}
    assert inside == {"port"}
    sent[0, 4] = 1e6
    loads = dict(zip(exchange.links, exchange.loads(sent).tolist(), strict=True))
    rate = Capacities(plan.fleet)(("nic", "c", 0, "infiniband", 0, "out"))
    assert loads["nic", "c", 0, "infiniband", 0, "out"] == pytest.approx(1e6 / rate)
    assert loads["nic", "c", 1, "infiniband", 0, "in"] == pytest.approx(1e6 / rate)
    assert loads["nic", "c", 1, "infiniband", 0, "out"] == 0.0
