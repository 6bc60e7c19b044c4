# ruff: noqa: E501 - a fault and its line stand side by side
"""Plan files: what they have, and that a plan survives the way to plan.json and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.errors import PlanError
from sim.formats import planfile
from sim.formats.config_facts import ConfigFacts, config_values
from sim.hardware.stack import DEFAULT
from sim.plan.certificate import UNLIKE, Axis, Certificate, SpaceBound
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.plan.under_stack import with_stack
from tests import builders
from tests.builders import cluster, fleet
from tests.sim.plan.pair_of_nodes import plan_of_a_file, refused


@pytest.fixture
def read(tmp_path: Path) -> Plan:
    """A plan on a topology that was read from a file."""
    return plan_of_a_file(tmp_path)


def test_a_plan_file_reads_back_as_the_same_plan_and_the_same_bytes(read: Plan) -> None:
    text = planfile.to_json(read)
    assert planfile.from_text("plan.json", text) == read
    assert planfile.to_json(planfile.from_text("plan.json", text)) == text


def test_prediction_and_certificate_are_read_back(read: Plan) -> None:
    annotated = replace(
        read,
        prediction=Prediction(1.5, 10.0, 1280.0, 3.25, 0.5, (1e9, 2e9), 0.1, 0.02, 0.75),
        certificate=Certificate(
            "optimal", 1.5, 1.25, 1 / 6, "highs", False, unlike_degrees=SpaceBound(1.5, 1.2, "all", UNLIKE)
        ),
    )
    assert planfile.from_text("plan.json", planfile.to_json(annotated)) == annotated


def test_the_space_of_a_certificate_reads_back_and_does_not_change_the_digest(read: Plan) -> None:
    axes = Axis("tp", (1, 2)), Axis("pp", ("1 to 4",)), Axis("schedule", ("1f1b", "zb-h1"))
    proof = Certificate("optimal", 1.5, 1.25, 1 / 6, "highs", False, space=axes, outside=("schedule gpipe", "zero_stage 0"))
    annotated = replace(read, certificate=proof)
    text = planfile.to_json(annotated)
    assert json.loads(text)["certificate"]["space"] == [
        {"axis": "tp", "values": [1, 2]},
        {"axis": "pp", "values": ["1 to 4"]},
        {"axis": "schedule", "values": ["1f1b", "zb-h1"]},
    ]
    assert json.loads(text)["certificate"]["outside"] == ["schedule gpipe", "zero_stage 0"]
    assert '\n      {"axis": "tp", "values": [1, 2]},\n' in text
    assert planfile.from_text("plan.json", text) == annotated
    assert planfile.digest(annotated) == planfile.digest(read)


def test_a_certificate_of_an_older_file_names_no_space_and_its_time_limit_is_ignored(read: Plan) -> None:
    annotated = replace(read, certificate=Certificate("optimal", 1.5, 1.25, 1 / 6, "highs", False))
    data = json.loads(planfile.to_json(annotated))
    del data["certificate"]["space"], data["certificate"]["outside"], data["certificate"]["time_limit_reached"]
    data["certificate"]["seconds"] = 50.0
    assert planfile.from_text("plan.json", json.dumps(data)) == annotated


def test_the_schema_of_a_plan_knows_the_space() -> None:
    schema = planfile.PlanFacts.model_json_schema()
    assert schema["$defs"]["AxisFacts"]["required"] == ["axis", "values"]
    assert not {"space", "outside"} & set(schema["$defs"]["CertificateFacts"]["required"])


def test_a_plan_file_has_its_keys_in_the_order_of_the_design(read: Plan) -> None:
    data = json.loads(planfile.to_json(read))
    assert list(data) == ["format", "topology", "workload", "config", "stages", "placement", "groups", "made_by"]
    assert data["stages"] == [{"layers": [0, 3]}, {"layers": [3, 4]}]
    assert data["placement"][:2] == ["ib/node0/dev0", "ib/node0/dev1"]
    assert data["groups"][0] == {
        "kind": "tp", "ranks": [0, 1], "nic": "intra_node", "transport": "intra_node", "collective": "ring",
    }  # fmt: skip


def test_a_plan_file_is_loaded_from_a_path(read: Plan, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(planfile.to_json(read))
    assert planfile.load(tmp_path / "plan.json") == read


def fault(plan: Plan, change: Callable[[dict[str, Any]], object]) -> str:
    """What reading says of a plan file that was changed; one key a line, so that the line tells."""
    data = json.loads(planfile.to_json(plan))
    change(data)
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items())
    return refused(lambda: planfile.from_text("plan.json", "{\n" + rows + "\n}\n"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("placement"), "plan.json:1: placement: this key is missing"),
        (lambda d: d["config"].pop("tp"), "plan.json:5: config.tp: this key is missing"),
        (lambda d: d["config"].update(tp=0), "plan.json:5: config.tp: 0 must be at least 1"),
        (lambda d: d["config"].update(colour=1), "plan.json:5: config.colour: unknown key; known: attention, cp, cp_algo, cuda_graphs, dispatcher, dp, ep, etp, gradient_precision, message_compression, microbatch_size, num_microbatches, offload, overlap_expert_communication, overlap_grad_reduce, overlap_param_gather, overlap_shared_experts, pp, recompute, recompute_layers, recompute_modules, routing, schedule, sequence_parallel, stage_cp, stage_dp, stage_ep, stage_etp, stage_microbatch_size, stage_offload, stage_recompute, stage_tp, stage_zero, tied_shards, tp, tp_overlap, vpp, zero_shard_size, zero_stage"),
        (lambda d: d["config"].update(routing={"capacity_factor": 0}), "plan.json:5: config.routing.capacity_factor: 0 must be above 0; leave it out to drop no token"),
        (lambda d: d["config"].update(routing={"pad_to_capacity": True}), "plan.json:5: config.routing: pad_to_capacity needs a capacity_factor, such as 1.1, up to which rows are padded"),
        (lambda d: d["config"].update(routing={"imbalance": 1.3}), "plan.json:5: config.routing: model small has no experts to route tokens to; leave routing out"),
        (lambda d: d["config"].update(routing={"imbalance": 1, "exchange": 0.5}), "plan.json:5: config.routing.exchange: model small has no experts to exchange tokens with; leave it out"),
        (lambda d: d["workload"].update(routing="real"), "plan.json:4: workload.routing: model small has no experts to route tokens to; leave routing out"),
        (lambda d: d["config"].update(routing="evn"), "plan.json:5: config.routing: 'evn' is unknown; known: 'balanced' or 'real'"),
        (lambda d: d["config"].update(recompute="some"), "plan.json:5: config: recompute 'some' is unknown; known: none, selective, full"),
        (lambda d: d["placement"].__setitem__(7, "roce/node0/dev0"), "plan.json:7: placement[7]: roce/node0/dev0 is already the device of rank 4"),
        (lambda d: d["placement"].__setitem__(7, "roce/dev0"), "plan.json:7: placement[7]: 'roce/dev0' is not a device; write for example 'ib/node0/dev3'"),
        (lambda d: d["groups"].pop(), "plan.json:8: groups: the pp group of ranks [3, 7] is missing"),
        (lambda d: d["groups"][0].update(kind="xp"), "plan.json:8: groups[0].kind: 'xp' is unknown; known: 'tp', 'pp', 'dp', 'cp', 'ep' or 'etp'"),
        (lambda d: d["stages"].pop(), "plan.json:6: stages: 1 given, pp 2 x vpp 1 needs 2"),
        (lambda d: d["workload"].update(precision="fp12"), "plan.json:4: workload.precision: precision 'fp12' is unknown; known: fp32, tf32, fp16, bf16, fp8, mxfp8, nvfp4"),
        (lambda d: d.update(format="holmes-sim/topology/1"), "plan.json:2: format: this is a topology; a plan is expected (`holmes-sim plan plan.json -o plan.json` makes one)"),
        (lambda d: d.update(format="holmes-sim/plan/3"), "plan.json:2: format: 'holmes-sim/plan/3' is unknown; known: 'holmes-sim/plan/1' or 'holmes-sim/plan/2'"),
        (lambda d: d["topology"]["clusters"]["ib"].update(nodes=0), "plan.json:3: topology.clusters.ib.nodes: 0 must be at least 1"),
        (lambda d: d["topology"]["clusters"]["ib"]["node"]["devices"].update(type="a100-sxm4-80g"), "plan.json:3: topology.clusters.ib.node.devices.type: device 'a100-sxm4-80g' is not in the catalogue; did you mean 'a100-sxm4-80gb'?"),
    ],
)  # fmt: skip
def test_a_fault_of_a_plan_file_is_one_line(read: Plan, change: Callable[[dict[str, Any]], object], message: str) -> None:
    assert fault(read, change) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "plan.json:1: the file is empty; a mapping of keys is expected here"),
        ("[]", "plan.json:1: a mapping of keys is expected here, not list"),
        ('{"format": "holmes-sim/plan/1",\n', "plan.json:2: not well-formed JSON: did not find expected node content"),
    ],
)
def test_a_text_that_is_no_plan_is_refused(text: str, message: str) -> None:
    assert refused(lambda: planfile.from_text("plan.json", text)) == message


def test_a_missing_plan_file_is_named(tmp_path: Path) -> None:
    assert refused(lambda: planfile.load(tmp_path / "plan.json")) == f"{tmp_path}/plan.json: no such file"


def test_a_plan_file_says_what_the_hosts_keep(read: Plan) -> None:
    data = json.loads(planfile.to_json(read))
    assert "offload" not in data["config"]
    for words in ("optimizer", ["optimizer"]):
        data["config"]["offload"] = words
        found = planfile.from_text("plan.json", json.dumps(data))
        assert found.config.offloads_optimizer
        assert planfile.facts(found)["config"]["offload"] == ["optimizer"]


def test_a_plan_file_says_which_stage_has_the_head() -> None:
    found = builders.plan(fleet(cluster(devices=3)), pp=3, layers=(4, 0, 0), head=1)
    assert planfile.facts(found)["stages"] == [{"layers": [0, 4]}, {"layers": [4, 4], "head": True}, {"layers": [4, 4]}]


@pytest.mark.parametrize(("counts", "written"), [((), None), ((2,), 2), ((1, 0), [1, 0])])
def test_a_plan_file_says_how_many_layers_are_recomputed(counts: tuple[int, ...], written: int | list[int] | None) -> None:
    found = builders.plan(fleet(cluster(devices=2)), pp=2, recompute="full", recompute_layers=counts)
    assert planfile.facts(found)["config"].get("recompute_layers") == written
    text = json.dumps(planfile.facts(found)["config"])
    assert config_values(ConfigFacts.model_validate_json(text))["recompute_layers"] == counts


def test_a_plan_file_says_which_modules_are_recomputed() -> None:
    found = builders.plan(fleet(cluster()), recompute="selective", recompute_modules=("mlp", "layernorm"))
    written = planfile.facts(found)["config"]
    assert written["recompute_modules"] == ["mlp", "layernorm"]
    assert config_values(ConfigFacts.model_validate(written))["recompute_modules"] == ("mlp", "layernorm")


def test_a_plan_with_keys_by_stage_is_plan_2_and_reads_back_from_both_formats(read: Plan) -> None:
    """plan/1 had the keys by stage, too, before there was a plan/2; the digest, by which results name their plan, is the same."""
    unlike = replace(read, config=replace(read.config, offload=("optimizer",), stage_offload=("none", "optimizer")))
    written = planfile.to_json(unlike)
    assert json.loads(written)["format"] == "holmes-sim/plan/2"
    older = written.replace("holmes-sim/plan/2", "holmes-sim/plan/1")
    assert planfile.from_text("plan.json", written) == planfile.from_text("plan.json", older) == unlike
    assert '"format": "holmes-sim/plan/1"' in planfile.simulation_inputs(unlike)
    assert json.loads(planfile.to_json(read))["format"] == "holmes-sim/plan/1"


def test_unlike_degrees_are_in_the_file_only_where_there_are_some() -> None:
    found = builders.plan(fleet(cluster(devices=4)), 2, 2, stage_tp=(2, 1))
    assert planfile.facts(found)["config"]["stage_tp"] == [2, 1]
    text = json.dumps(planfile.facts(found)["config"])
    assert config_values(ConfigFacts.model_validate_json(text))["stage_tp"] == (2, 1)
    assert "stage_tp" not in planfile.facts(builders.plan(fleet(cluster(devices=4)), 2, 2))["config"]


def test_unlike_data_parallel_degrees_have_a_key() -> None:
    found = builders.plan(fleet(cluster(devices=4)), 1, 2, stage_dp=(1, 2), microbatch_size=2)
    assert planfile.facts(found)["config"]["stage_dp"] == [1, 2]
    text = json.dumps(planfile.facts(found)["config"])
    assert config_values(ConfigFacts.model_validate_json(text))["stage_dp"] == (1, 2)
    assert "stage_dp" not in planfile.facts(builders.plan(fleet(cluster(devices=4)), 2, 2))["config"]


def test_unlike_microbatch_sizes_have_a_key() -> None:
    found = builders.plan(fleet(cluster(devices=4)), 1, 2, microbatches=2, microbatch_size=4, stage_microbatch_size=(1, 4))
    assert planfile.facts(found)["format"] == "holmes-sim/plan/2"
    written = planfile.facts(found)["config"]
    assert (written["stage_microbatch_size"], written["microbatch_size"], written["num_microbatches"]) == ([1, 4], 4, [2])
    assert config_values(ConfigFacts.model_validate_json(json.dumps(written)))["stage_microbatch_size"] == (1, 4)
    assert "stage_microbatch_size" not in planfile.facts(builders.plan(fleet(cluster(devices=4)), 2, 2))["config"]


def test_unlike_zero_stages_offload_and_recomputation_have_keys() -> None:
    values = {"zero_stage": 3, "stage_zero": (3, 1), "offload": ("optimizer",), "stage_offload": ("none", "optimizer")}
    values |= {"recompute": "full", "recompute_layers": (2,), "stage_recompute": ("layernorm+mlp", "full")}
    found = builders.plan(fleet(cluster(devices=4)), 1, 2, 2, **values)
    written = planfile.facts(found)["config"]
    read = config_values(ConfigFacts.model_validate_json(json.dumps(written)))
    assert {name: read[name] for name in values} == values
    assert (written["stage_zero"], written["stage_offload"]) == ([3, 1], ["none", "optimizer"])
    assert (written["stage_recompute"], written["recompute_layers"]) == (["layernorm+mlp", "full"], 2)
    alike = planfile.facts(builders.plan(fleet(cluster(devices=4)), 2, 2))["config"]
    assert not {"stage_zero", "stage_offload", "stage_recompute"} & set(alike)


@pytest.mark.parametrize(("own", "stack", "overlaps"), [
    (None, False, False), (None, True, True), (True, False, True), (True, True, True), (False, True, False),
])  # fmt: skip
def test_a_plan_says_whether_tensor_parallelism_overlaps_or_leaves_it_to_the_stack(
    own: bool | None, stack: bool, overlaps: bool, read: Plan
) -> None:
    document = json.loads(planfile.to_json(read))
    assert "tp_overlap" not in document["config"]
    document["config"] |= {} if own is None else {"tp_overlap": own}
    document["topology"] |= {"stack": {"name": "ours", "tp_overlap": True, "fitted": {}}} if stack else {}
    found = planfile.from_text("plan.json", json.dumps(document))
    assert (found.config.tp_overlap, found.config.own_tp_overlap) == (overlaps, own)
    assert json.loads(planfile.to_json(found))["config"].get("tp_overlap") == own
    assert planfile.from_text("plan.json", planfile.to_json(found)) == found


def test_another_stack_leaves_what_a_plan_says_of_its_overlap(read: Plan) -> None:
    for own, stack, overlaps in ((None, True, True), (True, False, True), (False, True, False)):
        plan = replace(read, config=replace(read.config, own_tp_overlap=own))
        assert with_stack(replace(DEFAULT, tp_overlap=stack), plan).config.tp_overlap is overlaps


def test_no_plan_overlaps_over_links_that_cannot(read: Plan) -> None:
    document = json.loads(planfile.to_json(read))
    document["config"]["tp_overlap"] = True
    for cluster_facts in document["topology"]["clusters"].values():
        cluster_facts["node"]["intra_node"] = "pcie4"
    assert not planfile.from_text("plan.json", json.dumps(document)).config.tp_overlap


def test_a_plan_overlaps_whatever_joins_the_devices_of_idle_nodes(read: Plan) -> None:
    """The software does so on every node, or not at all: so a stack counts the idle ones, too."""
    document = json.loads(planfile.to_json(read))
    document["topology"]["clusters"]["idle"] = {"nodes": 1, "node": {
        "devices": {"type": "l40s", "count": 2}, "intra_node": "pcie4",
        "nics": [{"type": "ethernet", "bandwidth": "10 Gbit/s", "count": 1}],
    }}  # fmt: skip
    document["config"]["tp_overlap"] = True
    found = planfile.from_text("plan.json", json.dumps(document))
    assert found.config.tp_overlap
    assert with_stack(DEFAULT, found).config.tp_overlap
    del document["config"]["tp_overlap"]
    document["topology"]["stack"] = {"name": "ours", "tp_overlap": True, "fitted": {}}
    assert not planfile.from_text("plan.json", json.dumps(document)).config.tp_overlap


def test_a_word_in_place_of_a_switch_is_refused(read: Plan) -> None:
    document = json.loads(planfile.to_json(read))
    document["config"]["tp_overlap"] = "bulk"
    with pytest.raises(PlanError, match=r"config\.tp_overlap"):
        planfile.from_text("plan.json", json.dumps(document))
