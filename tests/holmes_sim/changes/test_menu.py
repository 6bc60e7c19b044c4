"""The menu of changes: what it offers for a fleet of two clusters, and that each can be made."""

from __future__ import annotations

import pytest

from holmes_sim import changes, commands
from sim.formats.edits import edited
from sim.formats.topology import written
from sim.results.cost_energy import rent

MENU = (
    ("global batch of 1536 sequences, not 768", (("workload.global_batch_size", 1536),)),
    ("global batch of 384 sequences, not 768", (("workload.global_batch_size", 384),)),
    (
        "ib: h100-sxm5-80gb, not a100-sxm4-80gb",
        (("clusters.ib.node.devices.type", "h100-sxm5-80gb"), ("clusters.ib.node.intra_node", "nvlink4")),
    ),
    (
        "roce: h100-sxm5-80gb, not a100-sxm4-80gb",
        (("clusters.roce.node.devices.type", "h100-sxm5-80gb"), ("clusters.roce.node.intra_node", "nvlink4")),
    ),
    ("ib: 160 GiB of memory a device, not 80 GiB", (("clusters.ib.node.devices.type.memory", "160 GiB"),)),
    ("roce: 160 GiB of memory a device, not 80 GiB", (("clusters.roce.node.devices.type.memory", "160 GiB"),)),
    ("ib: 8 infiniband NICs a node, not 4", (("clusters.ib.node.nics[0].count", 8),)),
    ("ib: 2 ethernet NICs a node, not 1", (("clusters.ib.node.nics[1].count", 2),)),
    ("roce: 4 roce NICs a node, not 2", (("clusters.roce.node.nics[0].count", 4),)),
    ("roce: 2 ethernet NICs a node, not 1", (("clusters.roce.node.nics[1].count", 2),)),
    ("ib: infiniband NICs of 400 Gbit/s, not 200 Gbit/s", (("clusters.ib.node.nics[0].bandwidth", "400 Gbit/s"),)),
    ("ib: ethernet NICs of 50 Gbit/s, not 25 Gbit/s", (("clusters.ib.node.nics[1].bandwidth", "50 Gbit/s"),)),
    ("roce: roce NICs of 400 Gbit/s, not 200 Gbit/s", (("clusters.roce.node.nics[0].bandwidth", "400 Gbit/s"),)),
    ("roce: ethernet NICs of 50 Gbit/s, not 25 Gbit/s", (("clusters.roce.node.nics[1].bandwidth", "50 Gbit/s"),)),
    ("ib: 3 nodes, not 2", (("clusters.ib.nodes", 3),)),
    ("roce: 3 nodes, not 2", (("clusters.roce.nodes", 3),)),
    ("sequences of 4096 tokens, not 2048", (("workload.seq_len", 4096),)),
    ("sequences of 1024 tokens, not 2048", (("workload.seq_len", 1024),)),
    ("ib to roce: ethernet link of 100 Gbit/s, not 50 Gbit/s", (("links[0].bandwidth", "100 Gbit/s"),)),
    ("ib: left out", (("links", []), ("clusters.ib", None))),
    ("roce: left out", (("links", []), ("clusters.roce", None))),
)


def test_the_menu_of_a_hybrid_fleet():
    topology = commands.load("holmes-hybrid-4")
    assert tuple((change.name, change.edits) for change in changes.menu(topology)) == MENU
    for change in changes.menu(topology):
        assert written(change.made(topology)) != written(topology)


def test_hosts_and_nics_that_are_not_there_yet_have_no_names():
    topology = edited(commands.load("holmes-hybrid-4"), {"clusters.ib.hosts": "a[1-2]"})
    topology = edited(topology, {"clusters.ib.node.nics[1].names": ["eno1"]})
    of_ib = [change for change in changes.menu(topology) if change.name.startswith("ib: ") and "left out" not in change.name]
    made = {change.name: change.made(topology).fleet.cluster("ib") for change in of_ib}
    assert made["ib: 3 nodes, not 2"].hosts == ()
    assert made["ib: 2 ethernet NICs a node, not 1"].node.nics[1].names == ()
    assert made["ib: infiniband NICs of 400 Gbit/s, not 200 Gbit/s"].hosts == ("a1", "a2")


def test_a_cluster_of_domains_gains_a_whole_domain_and_nics_for_each_host():
    facts = {"clusters.ib.nvlink_domain": 16, "clusters.ib.nodes": 4}
    topology = edited(commands.load("holmes-hybrid-4"), facts)
    made = {change.name: change for change in changes.menu(topology)}
    assert made["ib: 6 nodes, not 4"].edits == (("clusters.ib.nodes", 6),)
    assert made["ib: 6 nodes, not 4"].made(topology).fleet.cluster("ib").nodes == 3
    more = made["ib: 2 ethernet NICs a node, not 1"].made(topology).fleet.cluster("ib")
    assert more.node.host.nics[1].count == 2


def test_one_cluster_is_not_left_out_and_a_fleet_without_workload_keeps_none():
    alone = edited(commands.load("holmes-infiniband-4"), {"workload": None})
    names = [change.name for change in changes.menu(alone)]
    assert not [name for name in names if "left out" in name or "sequences" in name]


def test_what_has_a_price_costs_more_when_it_is_changed():
    topology = commands.load("holmes-hybrid-4")
    for path, price in (
        ("clusters.ib.node.devices.price", "3 USD/h"),
        ("clusters.roce.node.devices.price", "2 USD/h"),
        ("clusters.ib.node.nics[0].price", "0.5 USD/h"),
        ("links[0].price", "10 USD/h"),
    ):
        topology = edited(topology, {path: price})
    assert rent(topology.fleet) * 3600 == pytest.approx(16 * 3 + 16 * 2 + 2 * 4 * 0.5 + 10)
    made = {change.name: rent(change.made(topology).fleet) for change in changes.menu(topology)}
    cost = {name: (after - rent(topology.fleet)) * 3600 for name, after in made.items() if after is not None}
    assert cost["ib: infiniband NICs of 400 Gbit/s, not 200 Gbit/s"] == pytest.approx(2 * 4 * 0.5)
    assert cost["ib: 8 infiniband NICs a node, not 4"] == pytest.approx(2 * 4 * 0.5)
    assert cost["ib to roce: ethernet link of 100 Gbit/s, not 50 Gbit/s"] == pytest.approx(10)
    assert cost["roce: 3 nodes, not 2"] == pytest.approx(8 * 2)
    assert cost["ib: left out"] == pytest.approx(-(16 * 3 + 4 + 10))
    assert cost["global batch of 384 sequences, not 768"] == 0
    assert "ib: h100-sxm5-80gb, not a100-sxm4-80gb" in set(made) - set(cost), "nobody has said what it costs"
