# ruff: noqa: E501 - a fault and its line stand side by side
"""A topology varied by a value is the topology of the file in which that value was edited."""

from __future__ import annotations

import pytest

from holmes_sim import commands
from sim.errors import TopologyError
from sim.formats.edits import edited
from sim.formats.topology import written
from sim.hardware.cluster import Fabric


def base():
    return commands.load("holmes-hybrid-4")


@pytest.mark.parametrize(
    ("path", "value", "seen"),
    [
        (
            "clusters.roce.node.nics[0].bandwidth",
            "400 Gbit/s",
            lambda t: t.fleet.cluster("roce").node.nics[0].bandwidth == 50e9,
        ),
        ("clusters.ib.nodes", 5, lambda t: t.fleet.cluster("ib").nodes == 5),
        ("clusters.ib.fabric", {"nodes_per_leaf": 2}, lambda t: t.fleet.cluster("ib").fabric == Fabric(2, 1.0)),
        ("clusters.ib.fabric.nodes_per_leaf", 2, lambda t: t.fleet.cluster("ib").fabric == Fabric(2, 1.0)),
        ("clusters.ib.node.devices.type", "h100-sxm5-80gb", lambda t: t.fleet.cluster("ib").node.device.compute_units == 132),
        ("clusters.ib.node.devices.type.memory", "40 GiB", lambda t: t.fleet.cluster("ib").node.device.memory == 40 * 2**30),
        ("clusters.ib.node.intra_node.latency", "9 us", lambda t: t.fleet.cluster("ib").node.intra_node.latency > 8e-6),
        ("links[0].latency", "1 ms", lambda t: t.fleet.trunks[0].latency == pytest.approx(1e-3)),
        ("workload.global_batch_size", 96, lambda t: t.workload.global_batch_size == 96),
        ("workload.model", "gpt-7.5b", lambda t: t.workload.model.layers == 36),
        ("workload.model.layers", 31, lambda t: (t.workload.model.layers, t.workload.model.hidden) == (31, 3072)),
        ("name", "other", lambda t: t.name == "other"),
    ],
)
def test_a_value_at_a_place(path, value, seen):
    before = written(base())
    varied = edited(base(), {path: value})
    assert seen(varied)
    assert not seen(base())
    assert written(base()) == before


def test_only_the_edited_value_changes():
    varied = edited(base(), {"clusters.roce.node.nics[0].bandwidth": "400 Gbit/s"})
    back = edited(
        varied,
        {"clusters.roce.node.nics[0].bandwidth": written(base())["clusters"]["roce"]["node"]["nics"][0]["bandwidth"]},
    )
    assert back == base()
    assert varied.fleet.cluster("ib") == base().fleet.cluster("ib")
    assert varied.workload == base().workload


def test_several_places_change_at_once_and_only_what_comes_out_is_checked():
    """Three nodes with two names of hosts are no topology; with three names they are, in either order."""
    changes = {"clusters.ib.nodes": 3, "clusters.ib.hosts": ["a", "b", "c"]}
    for order in (changes, dict(reversed(changes.items()))):
        cluster = edited(base(), order).fleet.cluster("ib")
        assert (cluster.nodes, cluster.hosts) == (3, ("a", "b", "c"))
    assert edited(base(), {}) == base()
    with pytest.raises(TopologyError):
        edited(base(), {"clusters.ib.hosts": ["a", "b", "c"]})


def test_none_takes_a_key_or_an_element_out():
    assert edited(base(), {"workload": None}).workload is None
    assert [nic.kind for nic in edited(base(), {"clusters.roce.node.nics[0]": None}).fleet.cluster("roce").node.nics] == [
        "ethernet"
    ]
    alone = edited(base(), {"links": [], "clusters.roce": None})
    assert [cluster.name for cluster in alone.fleet.clusters] == ["ib"]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("clusters.rocky.nodes", 3, "clusters.rocky.nodes: there is no clusters.rocky; did you mean 'roce'?"),
        (
            "clusters.ib.node.nics[7].bandwidth",
            "1 Gbit/s",
            "clusters.ib.node.nics[7].bandwidth: there is no clusters.ib.node.nics[7]; the last one is clusters.ib.node.nics[1]",
        ),
        ("clusters.ib.nodes", "many", "holmes-hybrid-4 with edits: clusters.ib.nodes: 'many' is not a whole number"),
        ("clusters.ib.node.nics[0].speed", 3, "holmes-hybrid-4 with edits: clusters.ib.node.nics[0].speed: unknown key; known: bandwidth, count"),
        ("clusters.ib.node.nics[0].type.latency", "1 us", "clusters.ib.node.nics[0].type.latency: clusters.ib.node.nics[0].type is 'infiniband', which has no keys"),
        ("workload.batch.size", 3, "workload.batch.size: there is no workload.batch; known: global_batch_size, model"),
        ("clusters..ib", 3, "'clusters..ib' is not a path in a topology"),
        ("", 3, "'' is not a path in a topology"),
        ("links[0].colour", None, "links[0].colour: there is no links[0].colour"),
    ],
)  # fmt: skip
def test_an_edit_that_cannot_be_made_is_one_line(path, value, message):
    with pytest.raises(TopologyError) as wrong:
        edited(base(), {path: value})
    assert str(wrong.value).startswith(message)
    assert "\n" not in str(wrong.value)
