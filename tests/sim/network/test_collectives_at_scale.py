"""Collectives over 2 to 512 nodes: closed forms of chunks, switches, gaps and limits, and errors against measurements.

The measurements are those of `benchmarks/collectives.yaml`, which names their sources. No constant was fitted to the rows used
here; each tolerance is the error that the model reaches, rounded up to whole percents.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from benchmarks.collectives import measured, options, table, tuner_errors
from sim.engine.engine import simulate
from sim.formats import catalog
from sim.formats.topology import load
from sim.hardware.cluster import Device, Fleet, Nic
from sim.hardware.link_spec import LinkSpec, Protocol
from sim.kernels.payloads import gradient_bytes
from sim.network.alpha_beta import AlphaBeta, alpha_beta_cost, protocol_costs
from sim.network.paths import Capacities
from sim.network.protocols import protocols
from sim.network.routes import Member, message_route
from tests import builders
from tests.builders import cluster, wire
from tests.more import deep

MIB = 2**20
CHUNKED = Protocol("wide", 1e-5, 2e-5, 1.0, chunk=1e6)


def member(nodes: int, ranks: int = 1, collective: str = "tree") -> Member:
    hosts = tuple(tuple(Device("c", node, index) for index in range(ranks)) for node in range(nodes))
    return Member(hosts, "infiniband", collective)


def costs(fleet: Fleet, group: Member, operation: str = "all_reduce") -> tuple[AlphaBeta, ...]:
    return tuple(one.cost for one in protocol_costs(fleet, (group,), operation, Capacities(fleet)))


def nodes_with(card: LinkSpec, nodes: int = 4, devices: int = 1, count: int = 1, inside: LinkSpec | None = None) -> Fleet:
    """Nodes with NICs of 10 GB/s."""
    return builders.fleet(cluster("c", nodes, devices, (Nic(card, 1e10, count),), intra_node=inside or wire()))


# closed forms


@pytest.mark.parametrize(("nodes", "steps"), [(2, 2), (4, 4), (8, 6), (64, 12)])
def test_each_step_of_a_tree_between_nodes_waits_for_its_chunk_twice(nodes: int, steps: int) -> None:
    """1 MB is copied to the NIC and sent at 10 GB/s: 200 us beside the 20 us of the step."""
    (found,) = costs(nodes_with(wire("infiniband", protocols=(CHUNKED,)), nodes), member(nodes))
    assert found.latency == pytest.approx(1e-5 + steps * (2e-5 + 2e-4))


def test_a_ring_does_not_wait_for_chunks() -> None:
    (found,) = costs(nodes_with(wire("infiniband", protocols=(CHUNKED,))), member(4, collective="ring"))
    assert found.latency == pytest.approx(1e-5 + 6 * 2e-5)


@pytest.mark.parametrize(("devices", "nics", "rate"), [(2, 1, 1e10), (2, 2, 1e10), (2, 4, 2e10), (1, 4, 4e10)])
def test_a_chunk_goes_over_all_nics_of_its_device(devices: int, nics: int, rate: float) -> None:
    (found,) = costs(nodes_with(wire("infiniband", protocols=(CHUNKED,)), 2, devices, nics), member(2))
    assert found.latency == pytest.approx(1e-5 + 2 * (2e-5 + 2 * 1e6 / rate))


def test_a_protocol_of_trees_is_no_protocol_of_rings() -> None:
    card = wire("infiniband", protocols=(CHUNKED, Protocol("in trees", 0.0, 1e-6, 0.5, in_trees=True)))
    fleet = nodes_with(card)
    assert protocols(fleet, (member(4),), "all_reduce") == ("wide", "in trees")
    assert protocols(fleet, (member(4, collective="ring"),), "all_reduce") == ("wide",)
    assert protocols(fleet, (member(4),), "all_gather") == ("wide",)  # a ring, because a tree cannot do it


def test_the_switches_of_nodes_reduce_for_a_tree_between_them() -> None:
    """Four devices on 1 GB/s ports: 5/4 of the payload passes a port of a switch that reduces, twice the payload a chain's."""
    card = wire("infiniband", protocols=(Protocol("wide", 0.0, 0.0, 1.0), Protocol("switched", 0.0, 0.0, 1.0, in_trees=True)))
    offers = (Protocol("wide", 0.0, 0.0, 1.0), Protocol("switched", 0.0, 0.0, 1.0, in_switch=True))
    fleet = nodes_with(card, 2, 4, inside=wire(bandwidth=1e9, protocols=offers))
    group = member(2, 4)
    assert protocols(fleet, (group,), "all_reduce") == ("wide", "switched")
    assert [one.per_byte for one in costs(fleet, group)] == pytest.approx([2 / 1e9, 1.25 / 1e9])
    assert protocols(fleet, (member(2, 4, "ring"),), "all_reduce") == ("wide",)


def test_messages_of_an_all_to_all_to_other_nodes_leave_one_after_the_other() -> None:
    """Of four nodes of two, a rank sends to six ranks of other nodes."""
    card = wire("infiniband", latency=1e-5, overhead=3e-5, gap=1e-6)
    fleet = nodes_with(card, 4, 2)
    (found,) = costs(fleet, member(4, 2, "all_to_all"), "all_to_all")
    assert found.latency == pytest.approx(3e-5 + 1e-5 + 6e-6)
    (inside,) = costs(fleet, member(1, 2, "all_to_all"), "all_to_all")
    assert inside.latency == 0


def test_an_all_to_all_between_nodes_uses_the_protocol_of_large_payloads() -> None:
    offers = (Protocol("quick", 1e-6, 2e-6, 0.1), CHUNKED)
    fleet = nodes_with(wire("infiniband", protocols=offers), 2, 2, inside=wire(protocols=offers))
    assert protocols(fleet, (member(2, 2, "all_to_all"),), "all_to_all") == ("wide",)
    assert protocols(fleet, (member(1, 2, "all_to_all"),), "all_to_all") == ("quick", "wide")


@pytest.mark.parametrize(("gbit", "reached"), [(25, 2.5e9), (50, 5e9), (100, 5e9), (400, 5e9)])
def test_sockets_reach_a_rate_of_the_host_at_most(gbit: float, reached: float) -> None:
    """0.8 of 25 Gbit/s (3.125 GB/s), and 5 GB/s of 100 Gbit/s: NVIDIA/nccl#450 has 4 to 6."""
    card = Nic(catalog.nic_facts("ethernet").isolated(), gbit * 1e9 / 8, 1)
    fleet = builders.fleet(cluster("c", 2, 1, (card,)))
    route = message_route(fleet, Device("c", 0, 0), Device("c", 1, 0), "ethernet")
    assert 1 / alpha_beta_cost((route,), Capacities(fleet)).per_byte == pytest.approx(reached)


def test_a_stated_efficiency_replaces_the_limit_of_the_host(tmp_path: Path) -> None:
    path = tmp_path / "topo.yaml"
    path.write_text(
        "format: holmes-sim/topology/1\nname: t\nclusters:\n  c:\n    nodes: 2\n    node:\n"
        "      devices: {type: a100-sxm4-80gb, count: 8}\n      intra_node: nvlink3\n"
        "      nics: [{type: ethernet, bandwidth: 100 Gbit/s, efficiency: 0.8}]\n",
        encoding="utf-8",
    )
    (card,) = load(path).fleet.cluster("c").node.nics
    assert card.bandwidth * card.reached("all_reduce") == pytest.approx(10e9)


def test_the_engine_reduces_gradients_over_a_tree_as_the_closed_form_says() -> None:
    """Eight replicas on four nodes; a step between nodes takes 5 us and the two times of its chunk 20 us."""
    machines = builders.fleet(cluster("c", 4, 2, (Nic(wire("infiniband", protocols=builders.OVER_NICS), 1e10, 2),)))
    plan = builders.plan(machines, dp=8, layers=(40,), collective={"dp": "tree"}, zero_stage=0, overlap_grad_reduce=False)
    ((_, nbytes),) = gradient_bytes(plan.workload, plan.config, 40, True, True)
    (took,) = [span.seconds for span in simulate(plan).of(0) if span.name == "dp all_reduce" and span.lane == "dp"]
    found = costs(machines, member(4, 2))
    assert [one.latency for one in found][-1] == pytest.approx(1e-5 + 4 * (5e-6 + 2e-5))
    assert took == pytest.approx(min(one.seconds(nbytes) for one in found), rel=1e-9)
    assert min(found, key=lambda one: one.seconds(nbytes)) == found[-1]


# measurements

LITERAL = [
    ("h100-issue", "all_reduce", 4, 16 * MIB, 259.6),
    ("h100-issue", "all_reduce", 4, 1024 * MIB, 5808.8),
    ("h100-figure", "all_reduce", 8, 64 * MIB, 702.8),
    ("h100-figure", "all_reduce", 512, 256 * MIB, 2439.7),
    ("b200-vultr", "all_reduce", 2, 1024 * MIB, 3016.62),
    ("b200-efa", "all_reduce", 4, 16 * MIB, 504.5),
    ("p5-efa-best", "reduce_scatter", 64, 256 * MIB, 5936.4),
]
"""Microseconds: nccl-tests of NCCL 2.26.2 on H100; stas00/ml-engineering network/images/nccl-all-reduce-scan.png and README.md;
nccl-tests on B200 (Vultr); nanotron ultrascale playbook, pp_comm_bandwidth.html."""


@pytest.mark.parametrize(("cluster", "operation", "nodes", "nbytes", "us"), LITERAL)
def test_the_model_is_within_sixteen_percent_of_rows_it_has_not_seen(
    cluster: str, operation: str, nodes: int, nbytes: int, us: float
) -> None:
    (curve,) = [c for c in measured() if (c.cluster, c.operation, c.nodes) == (cluster, operation, nodes)]
    assert not curve.fitted
    assert dict(curve.points)[nbytes] == pytest.approx(us * 1e-6, rel=1e-3)
    assert abs(dict(curve.errors())[nbytes]) <= 0.16


def errors(cluster: str, operation: str) -> list[float]:
    """Absolute errors of all predicted rows of a cluster."""
    return [
        abs(error)
        for c in measured()
        if (c.cluster, c.operation, c.fitted) == (cluster, operation, False)
        for _, error in c.errors()
    ]


@pytest.mark.parametrize(
    ("cluster", "operation", "rows", "middle", "worst"),
    [
        ("h100-issue", "all_reduce", 19, 0.09, 0.62),
        ("h100-figure", "all_reduce", 39, 0.09, 0.27),
        ("h100-one-a-node", "all_reduce", 5, 0.10, 0.30),
        ("b200-vultr", "all_reduce", 20, 0.08, 0.24),
        ("mi355x", "all_reduce", 19, 0.06, 0.43),
        ("a100-oci", "all_reduce", 3, 0.11, 0.11),
        ("b200-efa", "all_reduce", 18, 0.05, 0.31),
        ("p5-efa-best", "all_reduce", 6, 0.22, 0.29),
        ("p5-efa-best", "reduce_scatter", 6, 0.05, 0.22),
        ("simai", "all_gather", 42, 0.09, 0.55),
        ("b200-vultr", "all_gather", 20, 0.20, 0.49),
        ("b200-vultr", "reduce_scatter", 20, 0.21, 0.49),
        ("b200-vultr-env2", "all_to_all", 19, 0.21, 0.42),
        ("mi355x", "all_to_all", 19, 0.08, 0.31),
        ("b200-vultr-env2", "send_recv", 14, 0.07, 0.29),
    ],
)
def test_errors_between_nodes_stay_what_they_are(cluster: str, operation: str, rows: int, middle: float, worst: float) -> None:
    """Median and worst over payloads and numbers of nodes; the worst are small payloads."""
    found = errors(cluster, operation)
    assert len(found) == rows
    assert median(found) <= middle
    assert max(found) <= worst


def test_default_settings_of_b200_halve_what_sends_reach() -> None:
    """The same nodes send 1.8 times as fast under other settings, which the model predicts; see docs/model.md."""
    found = errors("b200-vultr", "send_recv")
    assert 0.45 <= max(found) <= 0.5
    assert median(errors("b200-vultr", "all_to_all")) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_a_ring_with_fewer_ranks_on_a_node_has_the_rate_that_nccl_expects(ranks: int) -> None:
    """NCCL 2.27.5 on H100: on 8 nodes an all_reduce runs at 27.4, 51.2, 99.1 and 195 GB/s with 1, 2, 4 and 8 ranks a node."""
    expected = {1: 27.4, 2: 51.2, 4: 99.1, 8: 195.0}[ranks]
    machine = next(c.machine for c in measured() if c.cluster == "h100-issue")
    assert 1e-9 / options(machine, "all_reduce", 8, ranks)["ring", "Simple"].per_byte == pytest.approx(expected, rel=0.005)
    rings = [row for row in tuner_errors() if row[0] == "ring" and row[3] == ranks]
    assert len(rings) == 10
    assert max(abs(rate) for *_, rate in rings) <= 0.065


@deep
def test_the_table_has_a_line_for_each_curve() -> None:
    lines = list(table())
    assert sum(line.startswith("| h100-figure | all_reduce |") for line in lines) == 4
    assert any(line.startswith("| all_reduce | 512 |") for line in lines)
