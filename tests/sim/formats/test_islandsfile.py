"""Files of plans of islands: the same text after reading and writing, and faults with their lines."""

from __future__ import annotations

import json
from functools import cache

import pytest

from planner import api
from planner.request import Request, Wishes
from sim.errors import PlanError
from sim.formats import islandsfile, planfile, topology
from sim.islands.prediction import predict
from sim.plan.islands import IslandsPlan
from sim.plan.plan import MadeBy
from sim.sync import Sync

PINS = Wishes(tp=1, pp=1, dp=2, microbatch_size=1, schedule="1f1b", recompute="none", zero_stage=1)


@cache
def plan() -> IslandsPlan:
    """Two nodes of the lab's slow trunk as islands."""
    where = topology.load("topologies/lab/lab-slow-trunk.yaml")
    assert where.workload is not None
    names = [cluster.name for cluster in where.fleet.clusters]
    islands = tuple(api.plan(Request(where, where.workload, PINS, 1.0, ((name, 2),)), "megatron") for name in names)
    found = IslandsPlan(Sync("diloco", 20, compression="int8"), islands, MadeBy("by hand", "1"))
    return found.annotated(predict(found)[1])


def test_the_text_is_the_same_after_reading():
    text = islandsfile.to_json(plan())
    again = islandsfile.from_text("islands.json", text)
    assert islandsfile.to_json(again) == text
    assert again.prediction == plan().prediction
    assert json.loads(text) == json.loads(json.dumps(islandsfile.facts(plan())))
    assert islandsfile.is_islands(text)


def test_each_island_is_a_plan_of_its_own():
    first = islandsfile.facts(plan())["islands"][0]
    assert planfile.to_json(planfile.from_text("plan.json", json.dumps(first))) == planfile.to_json(plan().islands[0])


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"diloco"', '"dilco"', "3: sync: sync strategy 'dilco' is unknown; known: adaptive-sgd"),
        ('"inner_steps": 20', '"inner_steps": 0', "3: sync: sync diloco: inner_steps 0 should be at least 1"),
        ('"inner_steps": 20', '"inner_step": 20', "3: sync.inner_step: unknown key; did you mean 'inner_steps'?"),
        ('"layers": [0, ', '"layers": [1, ', "islands[0].stages[0].layers: [1, "),
        ('"islands": [', '"isles": [', "isles: unknown key; did you mean 'islands'?"),
    ],
)
def test_faults_name_their_line(old, new, why):
    text = islandsfile.to_json(plan())
    with pytest.raises(PlanError) as error:
        islandsfile.from_text("islands.json", text.replace(old, new, 1))
    assert str(error.value).startswith("islands.json:")
    assert why in str(error.value)


def test_a_plan_is_expected_where_islands_are_given():
    with pytest.raises(
        PlanError, match=r"islands\.json:2: format: this is a plan of islands; a plan of one island is expected"
    ):
        planfile.from_text("islands.json", islandsfile.to_json(plan()))
