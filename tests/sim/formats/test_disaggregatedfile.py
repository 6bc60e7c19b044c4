"""Files of plans with two sets of ranks: the same text after reading and writing, and faults with their lines."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

from sim.disaggregation.plan import DisaggregatedPlan, predict
from sim.errors import PlanError, TopologyError
from sim.formats import disaggregatedfile, documents, planfile, topology
from tests.two_rank_sets import plan


@cache
def text() -> str:
    return disaggregatedfile.to_json(plan())


def test_the_text_is_the_same_after_reading():
    again = disaggregatedfile.from_text("split.json", text())
    assert disaggregatedfile.to_json(again) == text()
    assert again == plan()
    assert json.loads(text()) == json.loads(json.dumps(disaggregatedfile.facts(plan())))
    assert disaggregatedfile.is_disaggregated(text())


def test_the_simulation_of_a_file_is_its_prediction():
    again = disaggregatedfile.from_text("split.json", text())
    assert predict(again.stage) == plan().prediction


def test_the_digest_is_of_what_a_simulation_depends_on():
    digest = disaggregatedfile.digest(plan())
    assert disaggregatedfile.digest(DisaggregatedPlan(plan().stage, plan().made_by)) == digest
    assert disaggregatedfile.digest(DisaggregatedPlan(replace(plan().stage, recompute="full"), plan().made_by)) != digest


def test_keys_with_usual_values_may_be_left_out():
    data = disaggregatedfile.facts(plan())
    for key in ("groups", "recompute", "prediction"):
        data.pop(key)
    data["kept"] = []
    found = disaggregatedfile.from_text("split.json", json.dumps(data))
    assert (found.stage.groups, found.stage.recompute, found.stage.kept, found.prediction) == (1, "none", (0, 0), None)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"groups": 1', '"groups": 0', "7: groups: 0 must be at least 1"),
        ('"groups": 1', '"group": 1', "7: group: unknown key; did you mean 'groups'?"),
        ('"groups": 1', '"groups": 2', "6: experts: 1 ranks are not 2 equal groups"),
        ('"rounds": 2', '"rounds": 3', "8: microbatches: 2 attention ranks x 2 microbatches x 3 rounds do not divide"),
        ('"kept": [0, 4]', '"kept": [0, 3]', "10: kept: 3 of 8 experts cannot be kept: 2 attention ranks of a group share"),
        ('"kept": [0, 4]', '"kept": [0]', "10: kept: 1 numbers; 2 layers need one each"),
        ('"old/node0/dev0"', '"old/node5/dev0"', "6: experts[0]: device old/node5/dev0 does not exist: cluster old has 2"),
        ('"old/node0/dev0"', '"new/node0/dev0"', "6: experts[0]: new/node0/dev0 is already attention[0]"),
        ('"old/node0/dev0"', '"old/dev0"', "6: experts[0]: 'old/dev0' is not a device; write for example"),
        ('"recompute": "none"', '"recompute": "selective"', "11: recompute: 'selective' is unknown; known: 'none' or 'full'"),
        ('"experts_per_token": 2', '"experts_per_token": 9', "4: workload.model"),
    ],
)
def test_faults_name_their_line(old, new, why):
    assert old in text()
    with pytest.raises(PlanError) as error:
        disaggregatedfile.from_text("split.json", text().replace(old, new, 1))
    assert str(error.value).startswith(f"split.json:{why}")


def test_another_kind_of_file_is_expected():
    with pytest.raises(PlanError, match=r"split\.json:2: format: this is a plan with two sets of ranks; a plan with one set"):
        planfile.from_text("split.json", text())
    with pytest.raises(TopologyError, match=r"split\.json:2: format: this is a plan with two sets of ranks; a topology is"):
        topology.from_document(documents.parse("split.json", text()))
