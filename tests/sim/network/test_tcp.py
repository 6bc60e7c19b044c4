"""TCP over long links: window, loss and connections, by hand, and met by the engine."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sim.engine.engine import simulate
from sim.errors import TopologyError
from sim.formats.documents import parse
from sim.formats.topology import from_document
from sim.hardware.cluster import Device, Fleet, Trunk
from sim.network import tcp
from sim.network.alpha_beta import alpha_beta_cost
from sim.network.paths import Capacities
from sim.network.routes import collective_route, message_route
from tests import builders

LONG = Trunk(("a", "b"), "ethernet", 12.5e9, 5e-3)
"""100 Gbit/s over a round trip of 10 ms."""


def machines(trunk: Trunk, devices: int = 4) -> Fleet:
    """Two clusters of one node of some devices, each with an ideal Ethernet NIC of 12.5 GB/s."""
    nic = builders.nic("ethernet", 12.5e9, devices)
    return builders.fleet(*(builders.cluster(name, 1, devices, (nic,)) for name in "ab"), trunks=(trunk,))


def seconds_a_byte(trunk: Trunk, *indices: int) -> float:
    """Of messages side by side from devices of a to devices of b."""
    fleet = machines(trunk)
    routes = tuple(message_route(fleet, Device("a", 0, i), Device("b", 0, i), "ethernet") for i in indices)
    return alpha_beta_cost(routes, Capacities(fleet)).per_byte


@pytest.mark.parametrize(
    ("facts", "rate"),
    [
        ({}, None),
        ({"window": 4e6}, 4e8),  # 4 MB in 10 ms
        ({"window": 4e6, "connections": 16}, 6.4e9),
        ({"loss": 1e-4}, 1448 * math.sqrt(1.5e4) / 0.01),  # 17.7 MB/s
        ({"window": 1e5, "loss": 1e-6}, 1e7),  # the window is less than the 177 MB/s of the loss
    ],
)
def test_the_rate_of_a_rank(facts: dict[str, float], rate: float | None) -> None:
    assert tcp.rank_rate((replace(LONG, **facts),)) == (None if rate is None else pytest.approx(rate))


def test_links_one_after_the_other_have_one_round_trip() -> None:
    """10 and 30 ms together; the smaller window; the losses add up; a link without limits adds its latency only."""
    second = Trunk(("b", "c"), "ethernet", 1e9, 15e-3, window=1e6, loss=1e-3)
    assert tcp.rank_rate((replace(LONG, window=4e6), second)) == pytest.approx(1448 * math.sqrt(1.5e3) / 0.04)
    assert tcp.rank_rate((LONG, replace(second, loss=0.0))) == pytest.approx(1e6 / 0.04)


def test_messages_of_several_ranks_have_a_window_each() -> None:
    limited = replace(LONG, window=2e7)  # 2 GB/s a rank
    assert 1 / seconds_a_byte(limited, 0) == pytest.approx(2e9)
    assert 1 / seconds_a_byte(limited, 0, 1, 2, 3) == pytest.approx(2e9)
    assert 1 / seconds_a_byte(replace(limited, window=4e7), 0, 1, 2, 3) == pytest.approx(12.5e9 / 4), "the link is full"
    assert 1 / seconds_a_byte(LONG, 0) == pytest.approx(12.5e9), "without a window, the whole link"


def test_a_ring_leaves_a_node_over_the_connections_of_all_its_members() -> None:
    """The rings of several channels leave from different devices: four members have four windows together."""
    fleet = machines(replace(LONG, window=1e6))  # 100 MB/s a rank
    hosts = tuple(tuple(Device(name, 0, index) for index in range(4)) for name in "ab")
    route = collective_route(fleet, hosts, "ethernet", "ring", "all_reduce")
    moved = 2 * 7 / 8
    assert alpha_beta_cost((route,), Capacities(fleet)).per_byte == pytest.approx(moved / 4e8)


def test_the_engine_meets_the_closed_form_of_a_pipeline() -> None:
    """One message each way at 10 MB/s: the step grows by their bytes over this rate, less those over the whole link."""
    trunks = LONG, replace(LONG, window=1e5)
    free, limited = (builders.plan(machines(trunk, 1), pp=2, microbatches=1) for trunk in trunks)
    nbytes = free.workload.seq_len * free.workload.model.hidden * 2 * free.config.microbatch_size
    grown = simulate(limited).step_s - simulate(free).step_s
    assert grown == pytest.approx(2 * nbytes * (1 / 1e7 - 1 / 12.5e9), rel=1e-6)


def test_links_that_carry_tcp_between_clusters_of_a_plan() -> None:
    spans, stays = builders.plan(machines(LONG, 1), pp=2), builders.plan(machines(LONG, 1))
    assert tcp.used(spans.fleet, spans.placement, spans.groups) == (LONG,)
    assert tcp.used(stays.fleet, stays.placement, stays.groups) == ()


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("type: infiniband, latency: 5 ms, window: 4 MiB", "window, loss and connections are of TCP"),
        ("type: ethernet, latency: 0 s, window: 4 MiB", "write for example latency: 5 ms"),
        ("type: ethernet, latency: 5 ms, connections: 4", "connections has no effect without window or loss"),
        ("type: ethernet, latency: 5 ms, window: 4 MiB, connections: 65", "NCCL opens at most 64"),
    ],
)
def test_wrong_links_are_one_line(facts: str, message: str) -> None:
    node = "{devices: {type: a100-sxm4-80gb, count: 1}, intra_node: nvlink3, nics: [{type: ethernet, bandwidth: 10 Gbit/s}]}"
    text = (
        "format: holmes-sim/topology/1\nname: two\n"
        f"clusters:\n  a: {{nodes: 1, node: {node}}}\n  b: {{nodes: 1, node: {node}}}\n"
        f"links:\n  - {{between: [a, b], bandwidth: 1 Gbit/s, {facts}}}\n"
    )
    with pytest.raises(TopologyError, match=message):
        from_document(parse("two", text))
