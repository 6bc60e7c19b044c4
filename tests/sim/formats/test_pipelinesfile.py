"""Files of plans of unlike pipelines: written by hand, the same text after reading and writing, and faults with their lines."""

from __future__ import annotations

import json

import pytest

from sim.engine.engine import simulate
from sim.errors import PlanError
from sim.formats import pipelinesfile, planfile
from sim.hardware.cluster import Device
from sim.plan.certificate import SpaceBound
from sim.plan.plan import Stage
from sim.results.report import predict
from tests.sim.plan.pair_of_nodes import TOPOLOGY

BY_HAND = (
    "format: holmes-sim/pipelines/1\ntopology:\n"
    + "".join(f"  {line}\n" for line in TOPOLOGY[: TOPOLOGY.index("workload:")].splitlines())
    + TOPOLOGY[TOPOLOGY.index("workload:") :].replace("vocab: 512}", "vocab: 512, tied_embeddings: false}")
    + """\
config: {schedule: 1f1b, zero_stage: 1}
pipelines:
- num_microbatches: [3]
  recompute: full
  recompute_layers: [2, 1]
  stages: [{layers: [0, 3]}, {layers: [3, 4]}]
  placement: [ib/node0/dev0, ib/node0/dev1]
- tp: 2
  num_microbatches: [5]
  stages: [{layers: [0, 4]}]
  placement: [roce/node0/dev0, roce/node0/dev1]
made_by: {strategy: by hand, version: "1"}
"""
)


def test_a_file_by_hand_needs_stages_microbatches_and_devices_only():
    plan = pipelinesfile.from_text("plan.yaml", BY_HAND)
    first, second = plan.pipelines
    assert (first.config.pp, first.config.dp, first.config.tp, first.stages) == (2, 1, 1, (Stage(0, 3), Stage(3, 4)))
    assert (second.config.pp, second.config.tp, second.config.num_microbatches) == (1, 2, (5,))
    assert second.placement == (Device("roce", 0, 0), Device("roce", 0, 1))
    assert {plan.config.other_dp_cp for plan in plan.pipelines} == {1}
    assert [(plan.config.recompute, plan.config.recompute_layers) for plan in plan.pipelines] == [
        ("full", (2, 1)),
        ("none", ()),
    ]
    assert [(group.kind, group.ranks) for one in plan.pipelines for group in one.groups] == [("pp", (0, 1)), ("tp", (0, 1))]


def test_the_text_is_the_same_after_reading():
    plan = pipelinesfile.from_text("plan.yaml", BY_HAND)
    text = pipelinesfile.to_json(plan)
    assert pipelinesfile.from_text("plan.json", text) == plan
    assert pipelinesfile.to_json(pipelinesfile.from_text("plan.json", text)) == text
    assert json.loads(text) == json.loads(json.dumps(pipelinesfile.facts(plan)))
    proved = plan.annotated(predict(plan, simulate(plan)), SpaceBound(2.0, 1.5, "all plans"))
    assert pipelinesfile.from_text("plan.json", pipelinesfile.to_json(proved)).certificate == SpaceBound(2.0, 1.5, "all plans")
    assert pipelinesfile.digest(proved) == pipelinesfile.digest(plan)
    assert pipelinesfile.is_pipelines(text)
    assert pipelinesfile.is_pipelines(BY_HAND)
    assert pipelinesfile.is_pipelines(f"# {'a long comment ' * 40}\n{BY_HAND}")
    assert not pipelinesfile.is_pipelines(BY_HAND.replace("holmes-sim/pipelines/1", "holmes-sim/plan/1"))


def test_an_entry_may_have_context_parallel_ranks():
    """Rank 0 and both cp ranks of the second entry hold the last layer."""
    plan = pipelinesfile.from_text("plan.yaml", BY_HAND.replace("- tp: 2", "- cp: 2"))
    assert [(one.config.cp, one.config.other_dp_cp) for one in plan.pipelines] == [(1, 2), (2, 1)]
    text = pipelinesfile.to_json(plan)
    assert pipelinesfile.from_text("plan.json", text) == plan
    assert [one.get("cp") for one in json.loads(text)["pipelines"]] == [None, 2]


def test_an_entry_may_divide_experts():
    """Two replicas of the second entry share the experts; the first entry has all of them, and sums both halves."""
    dense, moe = "vocab: 512, tied_embeddings: false}", "vocab: 512, tied_embeddings: false, experts: 4, experts_per_token: 2}"
    text = BY_HAND.replace(dense, moe).replace("- tp: 2\n  num_microbatches: [5]", "- ep: 2\n  num_microbatches: [2, 3]")
    with pytest.raises(PlanError, match="ranks of one ep group must have the same number of microbatches"):
        pipelinesfile.from_text("plan.yaml", text)
    plan = pipelinesfile.from_text("plan.yaml", text.replace("[2, 3]", "[2, 2]").replace("[3]", "[4]"))
    assert [(one.config.ep, one.config.other_edp) for one in plan.pipelines] == [(1, 1), (2, 1)]
    assert pipelinesfile.from_text("plan.json", pipelinesfile.to_json(plan)) == plan
    assert [one.get("ep") for one in json.loads(pipelinesfile.to_json(plan))["pipelines"]] == [None, 2]


def test_stages_of_an_entry_may_have_recomputation_and_offload_of_their_own():
    more = "stage_recompute: [full, none]\n  offload: [optimizer]\n  stage_offload: [none, optimizer]"
    plan = pipelinesfile.from_text("plan.yaml", BY_HAND.replace("recompute_layers: [2, 1]", more))
    first, second = (one.config for one in plan.pipelines)
    assert [first.of_pp_rank(stage).recompute for stage in (0, 1)] == ["full", "none"]
    assert [first.offload_of(stage) for stage in (0, 1)] == [(), ("optimizer",)]
    assert (second.offload, second.stage_recompute) == ((), ())
    assert pipelinesfile.from_text("plan.json", pipelinesfile.to_json(plan)) == plan
    with pytest.raises(PlanError, match="offload: parameters is not modelled in unlike pipelines; optimizer, activations"):
        single = BY_HAND.replace("1f1b, zero_stage: 1", "gpipe, zero_stage: 0").replace(", roce/node0/dev1]", "]")
        pipelinesfile.from_text("plan.yaml", single.replace("- tp: 2", "- offload: [optimizer, parameters]"))


def test_the_digest_depends_on_what_is_simulated():
    plan = pipelinesfile.from_text("plan.yaml", BY_HAND)
    other = pipelinesfile.from_text("plan.yaml", BY_HAND.replace("by hand", "someone"))
    moved = pipelinesfile.from_text("plan.yaml", BY_HAND.replace("ib/node0/dev1", "ib/node0/dev2"))
    assert pipelinesfile.digest(plan) == pipelinesfile.digest(other) != pipelinesfile.digest(moved)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("layers: [0, 3]", "layers: [1, 3]", "30: pipelines[0].stages[0].layers: [1, 3] must start at 0"),
        ("layers: [3, 4]", "layers: [3, 5]", "30: pipelines[0].stages: they have 5 layers, but model small has 4"),
        ("roce/node0/dev1", "ib/node0/dev0", "35: pipelines[1].placement: ib/node0/dev0 is already a device of pipelines[0]"),
        (
            "roce/node0/dev1",
            "roce/1",
            "35: pipelines[1].placement[1]: 'roce/1' is not a device; write for example",
        ),
        ("tp: 2", "tp: 4", "35: pipelines[1].placement: 2 devices for 4 ranks; one for each is needed"),
        (
            "tp: 2",
            "tp: 2\n  microbatch_size: 2",
            "22: workload.global_batch_size: 8, but the microbatches of all pipelines have 13",
        ),
        (
            "layers: [2, 1]",
            "layers: [2, 1, 1]",
            "27: pipelines[0]: recompute_layers has 3 numbers; one, or",
        ),
        ("tp: 2", "stage_tp: 2", "32: pipelines[1].stage_tp: a list is expected here, not 2"),
        ("schedule: 1f1b", "schedule: 1f1", "25: config: schedule '1f1' is unknown; known: 1f1b, "),
        ("zero_stage: 1", "zero_stage: 3", "25: config.zero_stage: 3 is not modelled in unlike pipelines; 0 or 1"),
        ("zero_stage: 1", "cp: 2", "25: config.cp: unknown key"),
        ("[5]", "[6]", "22: workload.global_batch_size: 8, but the microbatches of all pipelines have 9 samples"),
        ("pipelines:", "pipeline:", "pipeline: unknown key; did you mean 'pipelines'?"),
    ],
)
def test_faults_name_their_line(old: str, new: str, why: str) -> None:
    with pytest.raises(PlanError) as error:
        pipelinesfile.from_text("plan.yaml", BY_HAND.replace(old, new, 1))
    assert str(error.value).startswith("plan.yaml:")
    assert why in str(error.value)


def test_a_plan_of_alike_replicas_is_expected_where_pipelines_are_given():
    with pytest.raises(
        PlanError, match=r"plan\.yaml:1: format: this is a plan of unlike pipelines; a plan of alike replicas is"
    ):
        planfile.from_text("plan.yaml", BY_HAND)
