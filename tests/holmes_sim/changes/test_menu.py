"""The menu of changes: what it offers for a fleet of two clusters, and that each can be made."""

from __future__ import annotations

import pytest

from holmes_sim import changes, commands
from sim.formats.edits import edited
from sim.formats.topology import written
from sim.results.cost_energy import rent

WORKLOAD = (
    ("global batch of 1536 sequences, not 768", (("workload.global_batch_size", 1536),)),
    ("global batch of 384 sequences, not 768", (("workload.global_batch_size", 384),)),
    ("sequences of 4096 tokens, not 2048", (("workload.seq_len", 4096),)),
    ("sequences of 1024 tokens, not 2048", (("workload.seq_len", 1024),)),
    ("an output head of its own, not tied (another model)", (("workload.model.tied_embeddings", False),)),
)
LEFT_OUT = (
    ("ib: left out", (("links", []), ("clusters.ib", None))),
    ("roce: left out", (("links", []), ("clusters.roce", None))),
)
ADDITIONS = (
    (
        "ib: h100-sxm5-80gb, not a100-sxm4-80gb",
        (("clusters.ib.node.devices.type", "h100-sxm5-80gb"), ("clusters.ib.node.intra_node", "nvlink4")),
    ),
    (
        "roce: h100-sxm5-80gb, not a100-sxm4-80gb",
        (("clusters.roce.node.devices.type", "h100-sxm5-80gb"), ("clusters.roce.node.intra_node", "nvlink4")),
    ),
    ("ib: 99 GiB of memory a device, not 79.2 GiB", (("clusters.ib.node.devices.type.memory", "99 GiB"),)),
    ("ib: 158.4 GiB of memory a device, not 79.2 GiB", (("clusters.ib.node.devices.type.memory", "158.4 GiB"),)),
    ("roce: 99 GiB of memory a device, not 79.2 GiB", (("clusters.roce.node.devices.type.memory", "99 GiB"),)),
    ("roce: 158.4 GiB of memory a device, not 79.2 GiB", (("clusters.roce.node.devices.type.memory", "158.4 GiB"),)),
    ("ib: 8 infiniband NICs a node, not 4", (("clusters.ib.node.nics[0].count", 8),)),
    ("ib: 2 ethernet NICs a node, not 1", (("clusters.ib.node.nics[1].count", 2),)),
    ("roce: 4 roce NICs a node, not 2", (("clusters.roce.node.nics[0].count", 4),)),
    ("roce: 2 ethernet NICs a node, not 1", (("clusters.roce.node.nics[1].count", 2),)),
    ("ib: infiniband NICs of 250 Gbit/s, not 200 Gbit/s", (("clusters.ib.node.nics[0].bandwidth", "250 Gbit/s"),)),
    ("ib: infiniband NICs of 400 Gbit/s, not 200 Gbit/s", (("clusters.ib.node.nics[0].bandwidth", "400 Gbit/s"),)),
    ("ib: ethernet NICs of 31.25 Gbit/s, not 25 Gbit/s", (("clusters.ib.node.nics[1].bandwidth", "31.25 Gbit/s"),)),
    ("ib: ethernet NICs of 50 Gbit/s, not 25 Gbit/s", (("clusters.ib.node.nics[1].bandwidth", "50 Gbit/s"),)),
    ("roce: roce NICs of 250 Gbit/s, not 200 Gbit/s", (("clusters.roce.node.nics[0].bandwidth", "250 Gbit/s"),)),
    ("roce: roce NICs of 400 Gbit/s, not 200 Gbit/s", (("clusters.roce.node.nics[0].bandwidth", "400 Gbit/s"),)),
    ("roce: ethernet NICs of 31.25 Gbit/s, not 25 Gbit/s", (("clusters.roce.node.nics[1].bandwidth", "31.25 Gbit/s"),)),
    ("roce: ethernet NICs of 50 Gbit/s, not 25 Gbit/s", (("clusters.roce.node.nics[1].bandwidth", "50 Gbit/s"),)),
    ("ib: 3 nodes, not 2", (("clusters.ib.nodes", 3),)),
    ("ib: 4 nodes, not 2", (("clusters.ib.nodes", 4),)),
    ("roce: 3 nodes, not 2", (("clusters.roce.nodes", 3),)),
    ("roce: 4 nodes, not 2", (("clusters.roce.nodes", 4),)),
    ("ib to roce: ethernet link of 62.5 Gbit/s, not 50 Gbit/s", (("links[0].bandwidth", "62.5 Gbit/s"),)),
    ("ib to roce: ethernet link of 100 Gbit/s, not 50 Gbit/s", (("links[0].bandwidth", "100 Gbit/s"),)),
)


def test_the_menu_of_a_hybrid_fleet():
    topology = commands.load("holmes-hybrid-4")
    menu = {change.name: change.edits for change in changes.menu(topology)}
    assert menu == dict((*WORKLOAD, *ADDITIONS, *LEFT_OUT))
    assert len(menu) == len(changes.menu(topology))
    assert [change.name for change in changes.menu(topology) if change.adds] == [name for name, _ in ADDITIONS]
    for change in changes.menu(topology):
        assert written(change.made(topology)) != written(topology)


@pytest.mark.parametrize(("count", "larger"), [(1, [2, 3]), (2, [3, 4]), (4, [5, 6, 8]), (17, [18, 19, 22, 34])])
def test_sizes_are_one_more_two_more_a_quarter_more_and_twice_as_many(count, larger):
    assert changes.larger_counts(count) == larger


@pytest.mark.parametrize("name", ["hethub-768", "mixed-h100-a100-v100", "lab/lab-slow-trunk", "holmes-uneven-8"])
def test_sizes_of_an_addition_ascend(name):
    topology = commands.load(name)
    sizes: dict[str, list[tuple[float, float, float]]] = {}
    for change in changes.menu(topology):
        if change.family:
            made = change.made(topology).fleet
            nics = sum(nic.count * nic.bandwidth for one in made.clusters for nic in one.node.nics)
            memory = sum(one.node.device.memory for one in made.clusters)
            size = (made.devices, memory, nics + sum(trunk.bandwidth for trunk in made.trunks))
            sizes.setdefault(change.family, []).append(size)
    assert len(sizes) > len(topology.fleet.clusters)
    assert all(of_one == sorted(of_one) and len(set(of_one)) == len(of_one) for of_one in sizes.values())


def test_a_device_that_lacks_something_of_its_predecessor_is_no_addition():
    topology = edited(commands.load("holmes-hybrid-4"), {"clusters.ib.node.devices.type.memory": "160 GiB"})
    adds = {change.name: change.adds for change in changes.menu(topology) if "h100-sxm5-80gb, not" in change.name}
    assert adds == {"ib: h100-sxm5-80gb, not a100-sxm4-80gb": False, "roce: h100-sxm5-80gb, not a100-sxm4-80gb": True}


def test_nics_are_doubled_or_shared_evenly():
    """Of 8 NICs each of the 8 devices has an equal share; 7 NICs are no size of today's nodes."""
    topology = edited(commands.load("mixed-h100-a100-v100"), {"clusters.h100.node.nics[0].count": 6})
    made = [change.made(topology).fleet for change in changes.menu(topology) if "infiniband NICs a node, not 6" in change.name]
    assert [fleet.cluster("h100").node.nics[0].count for fleet in made] == [8, 12]


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


def test_only_a_tied_head_may_become_one_of_its_own():
    own = edited(commands.load("holmes-hybrid-4"), {"workload.model.tied_embeddings": False})
    assert not [change.name for change in changes.menu(own) if "head" in change.name]
    (tied,) = (change for change in changes.menu(commands.load("holmes-hybrid-4")) if "head" in change.name)
    assert tied.made(commands.load("holmes-hybrid-4")).workload == own.workload
    assert not tied.adds


def test_one_cluster_is_not_left_out_and_a_fleet_without_workload_keeps_none():
    alone = edited(commands.load("holmes-infiniband-4"), {"workload": None})
    names = [change.name for change in changes.menu(alone)]
    assert not [name for name in names if "left out" in name or "sequences" in name or "head" in name]


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


def test_uneven_experts_may_be_balanced():
    mixture = edited(commands.load("holmes-hybrid-4"), {"workload.model": "mixtral-8x7b", "workload.routing.imbalance": 1.5})
    (change,) = (one for one in changes.menu(mixture) if one.edits[0][0] == "workload.routing")
    assert change.name == "balanced experts, as a router would give at best"
    assert change.made(mixture) == edited(commands.load("holmes-hybrid-4"), {"workload.model": "mixtral-8x7b"})
    assert not any(one.edits[0][0] == "workload.routing" for one in changes.menu(change.made(mixture)))
