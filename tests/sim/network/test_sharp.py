"""Reduction by switches between nodes (SHARP): bytes over each NIC and uplink, who may use it, and published rates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.collectives import Machine, options
from planner.space.shape import Shape
from sim import collectives
from sim.analytic.plan_costs import step_seconds
from sim.engine.engine import simulate
from sim.errors import PlanError
from sim.hardware.cluster import Cluster, Fabric, Fleet
from sim.hardware.transport import reduces_in_network
from sim.network.collective_costs import CollectiveCosts
from sim.network.paths import Capacities
from sim.network.replica_rows import ReplicaRows
from tests import builders

GIB = 2**30


def machines(nodes: int = 4, devices: int = 1, sharp: bool = True, fabric: Fabric | None = None) -> Fleet:
    """Nodes with one ideal NIC of 10 GB/s, and 100 GB/s between their devices."""
    nic = replace(builders.nic(), sharp=sharp)
    return builders.fleet(builders.cluster("c", nodes, devices, (nic,), fabric=fabric))


def test_every_host_sends_and_receives_the_buffer_once_over_the_network() -> None:
    hosts = ((0, 1, 2), (3,), (4, 5))
    (step,) = collectives.rounds("sharp", "all_reduce", hosts)
    host_of = {rank: host for host, ranks in enumerate(hosts) for rank in ranks}
    between = [t for t in step.transfers if host_of[t.source] != host_of[t.target]]
    for of in ("source", "target"):
        assert sorted(host_of[getattr(t, of)] for t in between) == [0, 1, 2]
    assert {t.share for t in step.transfers} == {1.0}
    assert sum(t.steps for t in between) == 2
    assert sum(t.steps for t in step.transfers) == 2 + 2 * 2  # the chain of three, up and down


@pytest.mark.parametrize(("nodes", "ring"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_an_all_reduce_takes_its_bytes_once(nodes: int, ring: float) -> None:
    """2 (n - 1)/n of the payload pass a NIC in a ring of one rank a node, and 1 where switches reduce."""
    for sharp, times in ((False, ring), (True, 1.0)):
        fleet = machines(nodes, sharp=sharp)
        rows = ReplicaRows.of(fleet, tuple((device,) for device in builders.every_device(fleet)))
        config = Shape(1, nodes, 1, "none", "1f1b", 1, 0).config(builders.plan(fleet, dp=nodes).workload, 1)
        costs = CollectiveCosts(fleet, replace(config, num_microbatches=(1,) * nodes), rows, Capacities(fleet))
        assert costs.seconds("dp", "all_reduce", 1e9, 1) == pytest.approx(times * 0.1, rel=1e-12)
        assert costs.best("dp", [("all_reduce", 1e9, 1)]) == ("sharp" if sharp and nodes > 2 else "ring")


def test_the_engine_meets_the_closed_form_with_and_without_overlap() -> None:
    for overlap in (False, True):
        facts = {"zero_stage": 0, "overlap_grad_reduce": overlap, "layers": (6,), "shape": {"hidden": 3072}, "dp": 8}
        steps = []
        for name in ("ring", "sharp"):
            plan = builders.plan(machines(4, 2), collective={"dp": name}, **facts)  # type: ignore[arg-type]
            steps.append(simulate(plan).step_s)
            assert steps[-1] == pytest.approx(step_seconds(plan), rel=1e-9)
        assert steps[1] < steps[0]


def test_an_uplink_carries_the_buffer_once_for_all_nodes_of_its_leaf() -> None:
    """Two leaves of two nodes, oversubscribed 4 : 1: an uplink of 5 GB/s carries 1 GB once, in 0.2 s; the NICs need 0.1 s."""
    fleet = machines(4, fabric=Fabric(2, 4.0))
    rows = ReplicaRows.of(fleet, tuple((device,) for device in builders.every_device(fleet)))
    plan = builders.plan(fleet, dp=4, zero_stage=0)
    costs = CollectiveCosts(fleet, plan.config, rows, Capacities(fleet), {"dp": "sharp"})
    assert costs.seconds("dp", "all_reduce", 1e9, 1) == pytest.approx(0.2, rel=1e-12)


def test_switches_reduce_on_one_cluster_and_for_gradients_only() -> None:
    one = builders.cluster("a", 2, nics=(replace(builders.nic(), sharp=True), builders.nic("ethernet", 1e9)))
    other: Cluster = replace(one, name="b")
    fleet = builders.fleet(one, other)
    a0, a1, b0, _ = builders.every_device(fleet)
    assert reduces_in_network(fleet, (a0, a1), "infiniband")
    assert not reduces_in_network(fleet, (a0, a1), "ethernet")
    assert not reduces_in_network(fleet, (a0, b0), "infiniband")
    assert not reduces_in_network(fleet, (a0,), "infiniband")
    four = machines(4)
    rows = ReplicaRows.of(four, tuple((device,) for device in builders.every_device(four)))
    config = builders.plan(four, dp=1, cp=4).config
    costs = CollectiveCosts(four, config, rows, Capacities(four))
    assert costs.seconds("cp", "all_reduce", 1e9, 1) == pytest.approx(0.15, rel=1e-12)


def test_a_plan_without_such_switches_is_refused() -> None:
    message = r"groups\[0\].collective: sharp needs a dp group on one cluster whose infiniband NICs have sharp: true; ring"
    with pytest.raises(PlanError, match=message):
        builders.plan(machines(sharp=False), dp=4, zero_stage=0, collective={"dp": "sharp"})
    with pytest.raises(PlanError, match=message):
        builders.plan(machines(4), tp=4, collective={"tp": "sharp"})


@pytest.mark.parametrize(
    ("link", "gbit", "count", "published", "error"),
    [
        ("nvlink4", 400, 8, 480 / 2, 0.11),  # DGX H100, NVIDIA GTC 2024 s62129 (bus bandwidth); many ranks
        ("nvlink3", 200, 8, 110, 0.05),  # DGX A100, NVIDIA/nccl#320: "limited to ~110 GB/s AlgBw"
        ("nvlink3", 200, 4, 80, 0.21),  # DGX A100 with four NICs, the same: 20 GB/s a NIC
    ],
)
def test_rates_are_those_of_nvidia(link: str, gbit: int, count: int, published: float, error: float) -> None:
    """Bytes of an all_reduce of 8 GiB over 16 nodes of eight, per second; nothing was fitted to these numbers."""
    machine = Machine(link, "infiniband", gbit * 1.25e8, count, 0.0, 1.0, sharp=True)
    seconds = min(cost.seconds(8 * GIB) for cost in options(machine, "all_reduce", 16, 8).values())
    assert 8 * GIB / seconds / 1e9 == pytest.approx(published, rel=error)
    without = options(replace(machine, sharp=False), "all_reduce", 16, 8)
    assert seconds < min(cost.seconds(8 * GIB) for cost in without.values())


def test_switches_reduce_under_simple_only() -> None:
    machine = Machine("nvlink4", "infiniband", 5e10, 8, 0.0, 1.0, sharp=True)
    assert [protocol for name, protocol in options(machine, "all_reduce", 4, 8) if name == "sharp"] == ["Simple", "NVLS"]
