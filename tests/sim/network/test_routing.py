"""RoCE flows between leaf switches: several may be sent over one uplink, so that they reach a share of the rate only."""

from __future__ import annotations

import pytest

from benchmarks.collectives import Machine
from sim.analytic.plan_costs import step_seconds
from sim.engine.engine import simulate
from sim.formats import catalog
from sim.hardware.cluster import Device, Fabric, Fleet
from sim.network.alpha_beta import alpha_beta_cost
from sim.network.paths import Capacities
from sim.network.routes import collective_route, message_route
from tests import builders


def machines(kind: str = "roce", share: float = 0.8, nodes: int = 4) -> Fleet:
    """Leaves of two nodes, with uplinks for all their NICs of 10 GB/s."""
    return builders.fleet(builders.cluster("c", nodes, 1, (builders.nic(kind),), fabric=Fabric(2, 1.0, share)))


def test_the_catalogue_has_measured_shares() -> None:
    assert catalog.routings() == {"five_tuple": 0.845, "queue_pairs": 0.8805, "adaptive": 0.97}


@pytest.mark.parametrize(("kind", "target", "rate"), [("roce", 1, 1e10), ("roce", 2, 8e9), ("infiniband", 2, 1e10)])
def test_a_message_is_slower_between_leaves_only(kind: str, target: int, rate: float) -> None:
    fleet = machines(kind)
    route = message_route(fleet, Device("c", 0, 0), Device("c", target, 0), kind)
    assert alpha_beta_cost((route,), Capacities(fleet)).per_byte == pytest.approx(1 / rate, rel=1e-12)


def test_a_ring_over_two_leaves_runs_at_the_rate_between_them() -> None:
    """2 (n - 1)/n of the buffer over each NIC, at 0.845 of 10 GB/s where the ring crosses leaves."""
    for nodes, share in ((2, 1.0), (4, 0.845)):
        fleet = machines(share=0.845, nodes=nodes)
        hosts = tuple((Device("c", node, 0),) for node in range(nodes))
        route = collective_route(fleet, hosts, "roce", "ring", "all_reduce")
        expected = 2 * (nodes - 1) / nodes / (1e10 * share)
        assert alpha_beta_cost((route,), Capacities(fleet)).per_byte == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("zero_stage", [0, 1])
def test_the_engine_meets_the_closed_form(zero_stage: int) -> None:
    steps = []
    for share in (1.0, 0.8):
        plan = builders.plan(machines(share=share), dp=4, zero_stage=zero_stage, layers=(6,), shape={"hidden": 3072})
        steps.append(simulate(plan).step_s)
        assert steps[-1] == pytest.approx(step_seconds(plan), rel=1e-9)
    assert steps[0] < steps[1]


def test_two_nodes_of_eight_reach_the_measured_share() -> None:
    """The measurement of the catalogue: an all_reduce over two nodes of eight below different leaves."""
    base = Machine("nvlink4", "roce", 5e10, 8, 0.0, 1.0).fleet(2)
    rates = []
    for share in (1.0, 0.845):
        cluster = base.clusters[0]
        fleet = Fleet("two", (type(cluster)("c", 2, cluster.node, Fabric(1, 1.0, share)),))
        hosts = tuple(tuple(Device("c", node, index) for index in range(8)) for node in range(2))
        route = collective_route(fleet, hosts, "roce", "ring", "all_reduce", "Simple")
        rates.append(1 / alpha_beta_cost((route,), Capacities(fleet)).per_byte)
    assert rates[1] / rates[0] == pytest.approx(0.845, rel=0.02)
