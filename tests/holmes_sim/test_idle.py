"""Idle devices of a plan, and clusters that no network joins with those of the plan."""

from __future__ import annotations

from holmes_sim.idle import idle_devices, unjoined_clusters
from sim.hardware.cluster import Trunk
from tests.builders import cluster, fleet, nic, plan

ETHERNET = (nic("ethernet", 1e9),)


def test_a_plan_on_all_devices_has_no_idle_ones():
    whole = plan(fleet(cluster()))
    assert idle_devices(whole) == unjoined_clusters(whole) == ""


def test_clusters_without_a_link_to_the_plan_are_named():
    """b has no link, c no NIC of the type of its link, d is joined and idle for another reason."""
    links = (Trunk(("a", "c"), "ethernet", 1e9, 0.0), Trunk(("a", "d"), "ethernet", 1e9, 0.0))
    of = plan(fleet(*(cluster(name, nics=ETHERNET) for name in "abd"), cluster("c", nics=(nic("roce"),)), trunks=links))
    assert {device.cluster for device in of.placement} == {"a"}
    assert idle_devices(of) == "3 of 4 devices are idle."
    assert unjoined_clusters(of) == "b, c are idle: no link of a common NIC type joins them with a (`links` of the topology)."


def test_one_cluster_is_named_in_the_singular():
    of = plan(fleet(cluster("a", nics=ETHERNET), cluster("b", nics=ETHERNET)))
    assert unjoined_clusters(of) == "b is idle: no link of a common NIC type joins it with a (`links` of the topology)."
