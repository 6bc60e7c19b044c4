"""The folder for ASTRA-sim: traces as protobuf reads them, groups, its other inputs, and what it cannot be told."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from holmes_sim import exporters, exporting
from holmes_sim.chakra import network
from holmes_sim.chakra.nodes import Traces
from holmes_sim.exporters import chakra
from sim.errors import PlanError
from sim.hardware.cluster import Device, Fabric, Trunk
from sim.plan.plan import Plan
from tests import builders
from tests.builders import cluster, fleet


@pytest.fixture
def two_hosts() -> Plan:
    """tp 2, pp 2, dp 2 on two hosts of four."""
    return builders.plan(fleet(cluster("ib", 2, 4)), tp=2, pp=2, dp=2, microbatches=2)


def test_files_of_a_plan(two_hosts: Plan) -> None:
    launch = exporting.export(two_hosts, "chakra")
    assert sorted(launch.files) == sorted(
        ["README.md", "plan.json", "comm_groups.json", "network.yml", "remote_memory.json", "system.json"]
        + [f"traces/trace.{rank}.et" for rank in range(8)]
    )
    assert launch.files["comm_groups.json"].content == (
        '{\n  "1": [0, 1],\n  "2": [2, 3],\n  "3": [4, 5],\n  "4": [6, 7],\n'
        '  "5": [0, 2],\n  "6": [1, 3],\n  "7": [4, 6],\n  "8": [5, 7]\n}\n'
    )
    system = json.loads(str(launch.files["system.json"].content))
    assert system["all-reduce-implementation"] == ["ring", "ring"]
    assert "--network-configuration=network.yml" in launch.how
    readme = str(launch.files["README.md"].content)
    assert "| `traces/ (8 files)` | the execution trace of one rank |" in readme


def test_protobuf_reads_the_nodes_that_were_meant(two_hosts: Plan) -> None:
    schema = pytest.importorskip("tests.holmes_sim.chakra.schema")
    files, traces = chakra.launch(two_hosts).files, Traces(two_hosts)
    for rank in range(8):
        version, read = schema.read(files[f"traces/trace.{rank}.et"].content)
        assert version == "0.0.4"
        assert [
            (node.id, node.name, node.type, tuple(node.data_deps), node.duration_micros, schema.attributes(node))
            for node in read
        ] == [
            (node.id, node.name, node.type, node.after, node.microseconds, dict(node.attributes)) for node in traces.nodes(rank)
        ]


def test_network_of_alike_hosts(two_hosts: Plan) -> None:
    """1e11 bytes a second inside and 1e10 of one NIC for four devices, in units of 2^30."""
    text = str(exporting.export(two_hosts, "chakra").files["network.yml"].content)
    assert yaml.safe_load(text) == {
        "topology": ["Switch", "Switch"], "npus_count": [4, 2], "bandwidth": [93.1323, 2.32831], "latency": [0, 0],
    }  # fmt: skip


def test_network_of_one_host() -> None:
    wire = builders.wire(bandwidth=2.0**31, latency=1.5e-6, efficiency=0.5)
    plan = builders.plan(fleet(cluster(devices=2, intra_node=wire)), dp=2)
    assert yaml.safe_load(network.text(network.dimensions(plan))) == {
        "topology": ["Switch"], "npus_count": [2], "bandwidth": [1], "latency": [1500],
    }  # fmt: skip


def test_networks_that_dimensions_cannot_express() -> None:
    one = fleet(cluster("a", 2, 4))
    askew = (Device("a", 1, 0), Device("a", 0, 0), Device("a", 0, 1), Device("a", 1, 1))
    thin = fleet(cluster("a", 2, 1, fabric=Fabric(1, 4.0)))
    two = fleet(cluster("a"), cluster("b"), trunks=(Trunk(("a", "b"), "infiniband", 1e9, 0.0),))
    found = [
        list(network.unsupported(plan))
        for plan in (
            builders.plan(one, dp=8), builders.plan(one, dp=4, placement=askew),
            builders.plan(one, dp=5), builders.plan(thin, dp=2),
            builders.plan(two, dp=2),
        )
    ]  # fmt: skip
    order = "ranks do not fill the nodes one after the other, with the same number on each"
    assert found == [
        [], [order], [order],
        ["leaves are oversubscribed 4 to 1"], ["clusters a, b have separate networks"],
    ]  # fmt: skip
    launch = chakra.launch(builders.plan(two, dp=2))
    assert "network.yml" not in launch.files
    assert "--network-configuration=YOURS" in launch.how
    assert launch.assumed[-1].startswith("No network.yml is written: clusters a, b have separate networks; ASTRA-sim's")


def test_another_algorithm_than_a_ring_is_refused() -> None:
    plan = builders.plan(fleet(cluster(nodes=2, devices=2)), dp=4, collective={"dp": "hierarchical"})
    with pytest.raises(PlanError) as refused:
        exporting.export(plan, "chakra")
    assert str(refused.value) == (
        "chakra cannot express collective hierarchical of dp groups: ASTRA-sim runs every group as one ring "
        "(CommunicatorGroup.cc); ring"
    )


def test_more_groups_than_streams_have_numbers_are_refused(two_hosts: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chakra, "MOST_GROUPS", 7)
    assert list(exporters.unsupported("chakra", two_hosts)) == ["groups 8: ASTRA-sim's stream numbers overflow; at most 7"]


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        ({"cp": 2}, "The ring exchange of keys and values among cp ranks is an all_gather"),
        ({"ep": 2, "shape": {"experts": 4, "experts_per_token": 2}}, "ASTRA-sim forwards an all_to_all of some of the ranks"),
    ],
)
def test_what_astra_sim_simulates_otherwise_is_reported(shape: dict[str, Any], line: str) -> None:
    machines = fleet(cluster(devices=4))
    assert any(text.startswith(line) for text in chakra.launch(builders.plan(machines, dp=2, **shape)).assumed)
    assert not any(text.startswith(line) for text in chakra.launch(builders.plan(machines, dp=2)).assumed)
