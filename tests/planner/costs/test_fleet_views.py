"""The fleet with and without its fabrics, and the NIC types of pipelines."""

from __future__ import annotations

import pytest

from planner.costs.fleet_views import FleetViews
from sim.errors import NoRoute
from sim.hardware.cluster import Fabric, Trunk
from tests import builders as make


def test_the_open_fleet_has_no_fabric_and_is_else_the_same():
    narrow = make.cluster("a", 4, fabric=Fabric(2, 4.0))
    views = FleetViews(make.fleet(narrow, make.cluster("b")))
    assert [cluster.fabric for cluster in views.fleet.clusters] == [Fabric(2, 4.0), None]
    assert [cluster.fabric for cluster in views.open.clusters] == [None, None]
    assert [cluster.node for cluster in views.open.clusters] == [cluster.node for cluster in views.fleet.clusters]


def test_the_nic_type_of_a_pipeline_is_one_that_joins_all_its_clusters():
    both, ethernet = (make.nic("infiniband", 1e10), make.nic("ethernet", 1e9)), (make.nic("ethernet", 1e9),)
    a, b, c = make.cluster("a", 2, nics=both), make.cluster("b", 2, nics=ethernet), make.cluster("c", nics=ethernet)
    views = FleetViews(make.fleet(a, b, c, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),)))
    assert views.nic_of((a,)) == "infiniband"
    assert views.nic_of((a, b)) == "ethernet"
    with pytest.raises(NoRoute):
        views.nic_of((a, c))
