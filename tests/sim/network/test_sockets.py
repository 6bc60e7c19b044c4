"""NICs that all hang on one CPU of a node: traffic of devices of the other CPU crosses the link between the two."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic.plan_costs import step_seconds
from sim.engine.engine import simulate
from sim.hardware.cluster import Device, Fleet
from sim.network.alpha_beta import alpha_beta_cost
from sim.network.paths import Capacities
from sim.network.routes import collective_route, message_route
from tests import builders


def machines(socket: int | None = 0, link: float = 1.5e10, inside: str = "nvlink4", nodes: int = 2) -> Fleet:
    """Nodes of eight devices with eight NICs of 10 GB/s on one CPU, and 15 GB/s between the CPUs."""
    nic = replace(builders.nic(count=8), socket=socket)
    one = builders.cluster("c", nodes, 8, (nic,), intra_node=builders.wire(inside))
    return builders.fleet(replace(one, node=replace(one.node, socket_link=link if socket is not None else 0.0)))


def seconds_a_byte(fleet: Fleet, *indices: int) -> float:
    """Of messages side by side between devices of equal indices on two nodes."""
    routes = tuple(message_route(fleet, Device("c", 0, i), Device("c", 1, i), "infiniband") for i in indices)
    return alpha_beta_cost(routes, Capacities(fleet)).per_byte


@pytest.mark.parametrize(
    ("socket", "indices", "rate"),
    [
        (None, (4, 5, 6, 7), 1e10),  # every NIC is near to its device
        (0, (0, 1, 2, 3), 1e10),  # devices 0 to 3 are on the CPU of the NICs
        (0, (7,), 1e10),  # one NIC does not fill the link of 15 GB/s
        (0, (6, 7), 7.5e9),
        (0, (4, 5, 6, 7), 3.75e9),
        (1, (0, 1, 2, 3), 3.75e9),
        (1, (4, 5, 6, 7), 1e10),
    ],
)
def test_devices_of_the_other_cpu_share_its_link(socket: int | None, indices: tuple[int, ...], rate: float) -> None:
    assert seconds_a_byte(machines(socket), *indices) == pytest.approx(1 / rate, rel=1e-12)


@pytest.mark.parametrize(
    ("operation", "inside", "members", "crosses"),
    [
        ("all_reduce", "nvlink4", range(8), False),  # rings leave the node from devices of the NICs' CPU
        ("all_reduce", "pcie4", range(8), False),
        ("all_reduce", "nvlink4", range(4, 8), True),
        ("all_to_all", "nvlink4", range(8), False),
        ("all_to_all", "pcie4", range(8), True),  # each rank sends for itself
    ],
)
def test_a_group_leaves_the_node_from_the_cpu_of_the_nics(operation: str, inside: str, members: range, crosses: bool) -> None:
    fleet = machines(inside=inside)
    hosts = tuple(tuple(Device("c", node, index) for index in members) for node in range(2))
    name = "ring" if operation == "all_reduce" else "all_to_all"
    route = collective_route(fleet, hosts, "infiniband", name, operation)
    used = {link for leg in route.legs for link, _ in leg.use if link[0] == "socket"}
    assert used == ({("socket", "c", node, way) for node in (0, 1) for way in ("out", "in")} if crosses else set())


def test_the_engine_meets_the_closed_form() -> None:
    """Four replicas of four stages on two nodes: messages from the first node's devices 4 to 7 to the second node."""
    steps = []
    for link in (1.5e10, 5e9):
        layers, shape = (2, 2, 2, 2), {"hidden": 1536}
        plan = builders.plan(machines(link=link), pp=4, dp=4, layers=layers, shape=shape, microbatches=4)
        steps.append(simulate(plan).step_s)
        assert steps[-1] >= step_seconds(plan) * (1 - 1e-9)
    assert steps[0] < steps[1]
