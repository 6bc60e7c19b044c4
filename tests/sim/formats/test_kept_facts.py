"""The facts of kept ranks: devices under their names of today, and after further losses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.errors import OptionError
from sim.formats.edits import edited
from sim.formats.kept_facts import KeptPlan, kept_facts
from sim.formats.lost_nodes import without
from tests import builders as make
from tests.sim.formats.test_lost_nodes import fleet


def test_nodes_are_found_by_their_hosts() -> None:
    plan = make.plan(make.fleet(make.cluster("c", 3, 1)), pp=3)
    today = make.fleet(replace(make.cluster("c", 3, 1), hosts=("c-node2", "c-node0", "c-node1")))
    facts = kept_facts(plan, "old.json", today)
    assert facts["placement"] == ["c/node1/dev0", "c/node2/dev0", "c/node0/dev0"]
    assert [stage.layers for stage in KeptPlan.model_validate(facts).stages] == [(0, 2), (2, 4), (4, 6)]


def test_a_device_that_the_fleet_lacks_is_named() -> None:
    plan = make.plan(make.fleet(make.cluster("c", 3, 1)), pp=3)
    said = r"rank 2 of old.json is on c/node2/dev0 \(host c-node2\), which tiny does not have; give a plan of this topology"
    with pytest.raises(OptionError, match=said):
        kept_facts(plan, "old.json", make.fleet(make.cluster("c", 2, 1)))


def test_a_device_of_another_type_is_one_of_another_fleet() -> None:
    plan = make.plan(make.fleet(make.cluster("c", 1, 2)), tp=2)
    other = make.fleet(make.cluster("c", 1, 2, spec=make.device("other")))
    with pytest.raises(OptionError, match=r"rank 0 of old.json is on c/node0/dev0, ideal; tiny has other there; give a plan"):
        kept_facts(plan, "old.json", other)


def test_lost_nodes_leave_ranks_without_a_device() -> None:
    """Node 1 of three is lost, and node 2 takes its number."""
    where = fleet(ib={"nodes": 3})
    plan = make.plan(where.fleet, pp=3, placement=tuple(make.every_device(where.fleet)[::8]))
    where = edited(where, {"require": {"ranks": {"keep": kept_facts(plan, "old.json", where.fleet)}}})
    left = without(where, [("ib", 1)]).topology
    kept = left.facts()["require"]["ranks"]["keep"]["placement"]
    assert kept == ["ib/node0/dev0", None, "ib/node1/dev0"]
    again = without(left, [("ib", 1)]).topology
    assert again.facts()["require"]["ranks"]["keep"]["placement"] == ["ib/node0/dev0", None, None]
