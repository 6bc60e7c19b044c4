"""The loss of nodes: who keeps a number, who keeps a leaf switch, and whose name nobody inherits."""

from __future__ import annotations

import itertools
import json

import pytest

from sim.errors import Infeasible, OptionError
from sim.formats.documents import parse
from sim.formats.edits import edited
from sim.formats.lost_nodes import parse_node, without
from sim.formats.topology import from_document
from sim.hardware.topology import Topology

NODE = {
    "devices": {"type": "a100-sxm4-80gb", "count": 8},
    "intra_node": "nvlink3",
    "nics": [{"type": "roce", "bandwidth": "200 Gbit/s", "count": 4}],
}


def fleet(**clusters: dict[str, object]) -> Topology:
    names = list(clusters)
    links = [
        {"between": [a, b], "type": "roce", "bandwidth": "100 Gbit/s", "latency": "5 us"} for a, b in itertools.pairwise(names)
    ]
    facts = {"format": "holmes-sim/topology/1", "name": "site", "source": "made up", "links": links}
    return from_document(parse("site", json.dumps(facts | {"clusters": {k: v | {"node": NODE} for k, v in clusters.items()}})))


def test_the_last_node_takes_the_number_and_hosts_keep_their_names() -> None:
    left = without(fleet(ib={"nodes": 4}), [("ib", 1)])
    assert left.previous == {("ib", 0): ("ib", 0), ("ib", 1): ("ib", 3), ("ib", 2): ("ib", 2)}
    assert left.renumbered == {("ib", 3): ("ib", 1)}
    (cluster,) = left.topology.fleet.clusters
    assert (cluster.nodes, cluster.hosts) == (3, ("ib-node0", "ib-node3", "ib-node2"))
    again = without(left.topology, [parse_node(left.topology.fleet, "ib-node3")])
    assert again.topology.fleet.clusters[0].hosts == ("ib-node0", "ib-node2")


def test_the_last_node_goes_without_a_trace() -> None:
    left = without(fleet(ib={"nodes": 3, "hosts": "gpu[7-9]"}), [("ib", 2)])
    assert left.renumbered == {}
    assert left.topology.fleet.clusters[0].hosts == ("gpu7", "gpu8")


def test_several_nodes_of_a_cluster() -> None:
    left = without(fleet(ib={"nodes": 6}), [("ib", 0), ("ib", 4), ("ib", 2)])
    assert left.topology.fleet.clusters[0].hosts == ("ib-node3", "ib-node1", "ib-node5")


def test_a_whole_cluster_goes_with_its_links() -> None:
    left = without(fleet(a={"nodes": 1}, b={"nodes": 1}, c={"nodes": 2}), [("a", 0)])
    assert [cluster.name for cluster in left.topology.fleet.clusters] == ["b", "c"]
    assert [trunk.between for trunk in left.topology.fleet.trunks] == [("b", "c")]


def test_a_node_that_moves_to_another_leaf_is_reported() -> None:
    leaves = {"nodes": 6, "fabric": {"nodes_per_leaf": 2, "oversubscription": 2}}
    assert without(fleet(ib=leaves), [("ib", 0)]).displaced == (("ib", 0),)
    assert without(fleet(ib=leaves), [("ib", 4)]).displaced == ()


def test_a_topology_without_nodes_left_is_infeasible() -> None:
    with pytest.raises(Infeasible, match=r"^no node of site is left; remedy: one more node than were lost$"):
        without(fleet(a={"nodes": 1}, b={"nodes": 1}), [("a", 0), ("b", 0)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ib/node3", "--lost ib/node3: cluster ib has nodes 0 to 2 (hosts gpu1 to gpu3)"),
        ("roce/node1", "--lost roce/node1: cluster roce has nodes 0 (host roce-node0)"),
        ("gpu4", "--lost 'gpu4' is neither a node such as ib/node0 nor a host of site; similar names: gpu1, gpu2, gpu3"),
        ("rocee/node0", "--lost 'rocee/node0' is neither a node such as ib/node0 nor a host of site; did you mean 'roce'?"),
    ],
)
def test_a_node_that_does_not_exist_is_one_line(text: str, said: str) -> None:
    where = fleet(ib={"nodes": 3, "hosts": "gpu[1-3]"}, roce={"nodes": 1}).fleet
    with pytest.raises(OptionError) as error:
        parse_node(where, text)
    assert str(error.value) == said


def test_whole_domains_are_lost_and_the_others_keep_their_hosts() -> None:
    where = fleet(gb={"nodes": 6, "nvlink_domain": 16, "hosts": "gpu[1-6]"})
    with pytest.raises(OptionError) as error:
        parse_node(where.fleet, "gpu2")
    assert str(error.value) == (
        "--lost gpu2: this host is in the NVLink domain gb/node0 of 2 hosts, and all domains of a cluster are equal; "
        "name the whole domain (gb/node0), or write a topology of smaller domains"
    )
    left = without(where, [parse_node(where.fleet, "gb/node0")])
    (cluster,) = left.topology.fleet.clusters
    assert (cluster.nodes, cluster.hosts) == (2, ("gpu5", "gpu6", "gpu3", "gpu4"))
    assert left.renumbered == {("gb", 2): ("gb", 0)}


def test_a_node_by_its_number_or_its_host() -> None:
    where = fleet(ib={"nodes": 3, "hosts": "gpu[1-3]"}).fleet
    assert parse_node(where, "ib/node2") == parse_node(where, "gpu3") == ("ib", 2)


def test_a_cluster_on_which_a_stage_is_wanted_cannot_be_lost_whole() -> None:
    two = fleet(ib={"nodes": 1}, roce={"nodes": 1})
    topology = edited(two, {"require": {"first_stage": "ib", "clusters": {"roce": {"tp": 2}}}})
    assert without(topology, [("roce", 0)]).topology.facts()["require"] == {"first_stage": "ib", "clusters": {}}
    with pytest.raises(Infeasible, match=r"no node of cluster ib is left, on which require.first_stage wants a stage"):
        without(topology, [("ib", 0)])
    topology = edited(two, {"require": {"stages": [{"stage": 2, "cluster": "roce"}]}})
    with pytest.raises(Infeasible, match=r"no node of cluster roce is left, on which require.stages wants a stage"):
        without(topology, [("roce", 0)])
