"""Measured profiles: read and refused at the door, put on devices, used as they are, and carried by plan.json."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.analytic import plan_costs, stage_amounts
from sim.engine.engine import simulate
from sim.engine.symmetry import unfolded
from sim.errors import PlanError, TopologyError
from sim.formats import catalog, planfile, profile, topology
from sim.formats.documents import parse
from sim.hardware.cluster import Device, Trunk
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.measured import MeasuredRow, Profile, lookup, shape
from sim.kernels import compute
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.model import Model
from sim.workload.workload import Workload
from tests import builders
from tests.builders import cluster, fleet, wire

OPT = Model("opt", 24, 1024, 16, 16, 4096, 50272, tied_embeddings=False)
WORK = Workload(OPT, 64, 2048, "tf32")

MINE = """\
format: holmes-sim/profile/1
source: measured by hand
precision: bf16
models:
  small: {layers: 4, hidden: 96, heads: 24, ffn_hidden: 384, vocab: 768, seq_len: 64, updated_parameters: 1000}
layer_profiles:
- {model: small, gpu: l40s, tp: 2, micro_batch: 1, layer_forward_s: 0.25, layer_backward_s: 0.5, layer_update_s: 2e-3,
   embedding_forward_s: 0.125, embedding_backward_s: 3e-06, head_forward_s: 0.0625, head_backward_s: 0.03125}
- {model: small, gpu: l40s, tp: 2, micro_batch: 4, layer_forward_s: 1.0, layer_backward_s: 2.0, layer_update_s: 2e-3,
   embedding_forward_s: 0.5, embedding_backward_s: 3e-06, head_forward_s: 0.25, head_backward_s: 0.125}
"""
SMALL = Model("any name", 4, 96, 24, 24, 384, 768)


def profiled(name: str, facts: Any) -> DeviceSpec:
    """A device of the catalogue with what a profile says of it."""
    described = {
        "format": "holmes-sim/topology/1",
        "name": "one",
        "clusters": {"c": {"nodes": 1, "node": {"devices": {"type": name, "count": 8}, "intra_node": "pcie4"}}},
    }
    read = topology.from_document(parse("one.yaml", json.dumps(described)))
    return topology.profiled(read, facts).fleet.clusters[0].node.device


def mine(text: str = MINE) -> Any:
    return profile.from_document(parse("mine.yaml", text))


def seconds(device: DeviceSpec, workload: Workload, **config: Any) -> tuple[Any, ...]:
    layout = ParallelConfig(**config)
    parts = (compute.layer_seconds, compute.embedding_seconds, compute.head_seconds)
    return tuple(part(device, workload, layout) for part in parts)


def test_a_profiled_size_is_used_as_it_was_measured() -> None:
    found = seconds(profiled("l40s", mine()), Workload(SMALL, 8, 64), tp=2)
    assert found == ((0.25, 0.5), (0.125, 3e-06), (0.0625, 0.03125))


def test_between_two_profiled_sizes_seconds_are_linear_in_the_microbatch_size() -> None:
    device, workload = profiled("l40s", mine()), Workload(SMALL, 8, 64)
    assert seconds(device, workload, tp=2, microbatch_size=2) == ((0.5, 1.0), (0.25, 3e-06), (0.125, 0.0625))
    config = ParallelConfig(tp=2, microbatch_size=2)
    assert compute.rests_on(device, workload, config) == "interpolated between microbatch sizes 1 and 4"


@pytest.mark.parametrize(
    ("workload", "config", "why"),
    [
        (Workload(SMALL, 8, 64), {"tp": 4}, "formula: tp 4 is not profiled, only 2"),
        (Workload(SMALL, 8, 64), {"tp": 2, "microbatch_size": 8},
         "formula: microbatch size 8 is outside the profiled sizes 1 to 4"),
        (Workload(SMALL, 8, 128), {"tp": 2}, "formula: not profiled with 128 tokens at bf16"),
        (Workload(SMALL, 8, 64, "fp16"), {"tp": 2}, "formula: not profiled with 64 tokens at fp16"),
        (Workload(replace(SMALL, hidden=192), 8, 64), {"tp": 2}, "formula: no model of the shape of any name is profiled"),
    ],
)  # fmt: skip
def test_layers_without_a_profile_use_the_formulas_with_a_reason(workload: Workload, config: Any, why: str) -> None:
    device = profiled("l40s", mine())
    assert compute.rests_on(device, workload, ParallelConfig(**config)) == why
    assert seconds(device, workload, **config) == seconds(catalog.device("l40s"), workload, **config)


def test_full_recomputation_runs_the_measured_forward_again() -> None:
    ((forward, backward), _, _) = seconds(profiled("l40s", mine()), Workload(SMALL, 8, 64), tp=2, recompute="full")
    assert (forward, backward) == pytest.approx((0.25, 0.75), rel=1e-15)


def test_the_optimizer_takes_measured_seconds_for_each_parameter() -> None:
    """2 ms on each of two ranks for 1,000 parameters: 4 us a parameter of a rank; Adam's state is shared by ZeRO 1."""
    device, workload = profiled("l40s", mine()), Workload(SMALL, 8, 64)
    parameters = 3 * SMALL.layer_parameters / 2
    for zero_stage, shared in ((0, 1), (1, 4)):
        config = ParallelConfig(tp=2, dp=4, num_microbatches=(1,) * 4, zero_stage=zero_stage)
        found = stage_amounts.optimizer_seconds(device, workload, config, 3, False, False)
        assert found == pytest.approx(4e-6 * parameters / shared, rel=1e-12)


def test_tf32_runs_at_fp32_where_there_is_none() -> None:
    turing, ampere = catalog.device("titan-rtx"), catalog.device("a100-sxm4-80gb")
    assert (turing.runs("tf32"), turing.peak_of("tf32")) == ("fp32", turing.peak_of("fp32"))
    assert (ampere.runs("tf32"), ampere.peak_of("tf32")) == ("tf32", 156e12)
    assert turing.runs("bf16") == ""


def test_a_tf32_profile_holds_for_fp32_only_where_the_device_has_no_tf32() -> None:
    facts = profile.load("sailor")
    fp32 = replace(WORK, precision="fp32")
    config = ParallelConfig(tp=8, microbatch_size=2)
    assert compute.rests_on(profiled("titan-rtx", facts), fp32, config) == "measured"
    assert compute.rests_on(profiled("rtx-3090", facts), fp32, config) == "formula: not profiled with 2048 tokens at fp32"


def test_the_shipped_profile_has_the_measurements_of_sailor() -> None:
    """OPT-350 on Titan RTX, tp 8, microbatch size 2, as profile.json has it, entries 2, 0 and 25."""
    found = seconds(profiled("titan-rtx", profile.load("sailor")), WORK, tp=8, microbatch_size=2)
    assert found == ((0.013889, 0.01741), (0.006495, 2e-06), (0.005318, 0.013428))


def test_no_row_is_slower_than_one_of_a_larger_microbatch() -> None:
    """GH200, tp 4: a microbatch of one was measured with 2.381 ms forward, of two with 1.509 ms."""
    device = profiled("gh200-96gb", profile.load("sailor"))
    one, two = (compute.layer_seconds(device, WORK, ParallelConfig(tp=4, microbatch_size=size)) for size in (1, 2))
    assert one == (0.001509, 0.001719)
    assert two == (0.001509, 0.001846)


def test_a_head_faster_than_the_peak_is_left_to_the_formula() -> None:
    """GPT-Neo's logits on A100 would take 2.1 ms at the tf32 peak; its last entry took 0.2 ms."""
    device, neo = profiled("a100-sxm4-40gb", profile.load("sailor")), Model("neo", 32, 2560, 20, 20, 10240, 50257)
    workload, config = Workload(neo, 8, 2048, "tf32"), ParallelConfig()
    assert compute.rests_on(device, workload, config) == "measured, head by formula"
    assert compute.head_seconds(device, workload, config) == compute.head_seconds(
        catalog.device("a100-sxm4-40gb"), workload, config
    )


def test_a_measurements_file_needs_no_format() -> None:
    """Without a format: names and precision of the shipped profile, unused keys kept out; neo rows of 26 entries are OPT's."""
    text = """\
source: {title: x, read: [a, b]}
notes: [n]
layer_profiles:
- {model: OPT-350, gpu: GH-96, tp: 4, micro_batch: 8, layer_forward_s: 0.003, layer_backward_s: 0.006, layer_update_s: 0.0,
   embedding_forward_s: 0.001, embedding_backward_s: 1e-06, head_forward_s: 0.004, head_backward_s: 0.005, n_entries: 26}
- {model: GPT-Neo-2.7, gpu: GH-96, tp: 4, micro_batch: 8, layer_forward_s: 0.003, layer_backward_s: 0.006,
   embedding_forward_s: 0.001, embedding_backward_s: 1e-06, n_entries: 26}
- {model: LLAMA-3-8, gpu: GH-96, tp: 4, micro_batch: 8, layer_forward_s: 0.003, layer_backward_s: 0.006,
   embedding_forward_s: 0.001, embedding_backward_s: 1e-06, n_entries: 35}
network_fits:
- {scope: intra-node, gpu: GH-96, gpus: 4, coefficients: [-0.7, 26.4, 82.0], max_bandwidth_GBps: 250.56}
"""
    device = profiled("gh200-96gb", mine(text))
    assert device.profile is not None
    assert [row.model for row in device.profile.rows] == [shape(OPT)]
    assert seconds(device, WORK, tp=4, microbatch_size=8) == ((0.003, 0.006), (0.001, 1e-06), (0.004, 0.005))


def test_a_profile_may_have_a_device_given_by_its_facts() -> None:
    text = MINE.replace("gpu: l40s", "gpu: my-cpu").replace("models:\n", "in_place: [my-cpu]\nmodels:\n", 1)
    assert mine(text).in_place == ["my-cpu"]
    named = MINE.replace("models:\n", "in_place: [my-cpu]\ndevices: {l40s: my-cpu}\nmodels:\n", 1)
    assert mine(named).devices == {"l40s": "my-cpu"}


def test_rows_that_were_measured_apart_say_so() -> None:
    apart = profiled("l40s", mine(MINE.replace("precision: bf16", "precision: bf16\ncollectives: apart")))
    inside = profiled("l40s", mine())
    work, layout = Workload(SMALL, 8, 64, "bf16"), ParallelConfig(tp=2)
    assert [compute.includes_collectives(device, work, layout) for device in (apart, inside)] == [False, True]
    assert not compute.includes_collectives(apart, work, ParallelConfig())
    assert seconds(apart, work, tp=2) == seconds(inside, work, tp=2)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("gpu: l40s, tp: 2, micro_batch: 4", "gpu: l40, tp: 2, micro_batch: 4",
         ["mine.yaml:9: layer_profiles[1].gpu: device 'l40' is not in the catalogue; "
          "write its name there under devices; did you mean 'l40s'?"]),
        ("micro_batch: 4", "micro_batch: 1", ["mine.yaml:9: layer_profiles[1]: this row repeats layer_profiles[0]"]),
        ("layer_forward_s: 1.0", "layer_forwards_s: 1.0",
         ["mine.yaml:9: layer_profiles[1].layer_forward_s: this key is missing",
          "mine.yaml:9: layer_profiles[1].layer_forwards_s: unknown key; did you mean 'layer_forward_s'?"]),
        ("layer_backward_s: 2.0", "layer_backward_s: two",
         ["mine.yaml:9: layer_profiles[1].layer_backward_s: 'two' is not a number"]),
        ("model: small, gpu: l40s, tp: 2, micro_batch: 4", "model: smal, gpu: l40s, tp: 2, micro_batch: 4",
         ["mine.yaml:9: layer_profiles[1].model: model 'smal' has no shape under models; did you mean 'small'?"]),
        ("precision: bf16\n", "", ["mine.yaml:1: precision: this key is missing; write the precision that was measured"]),
        ("profile/1", "profile/2", ["mine.yaml:1: format: 'holmes-sim/profile/2' is unknown; known: 'holmes-sim/profile/1'"]),
    ],
)  # fmt: skip
def test_every_fault_of_a_profile_is_a_line(old: str, new: str, lines: list[str]) -> None:
    assert old in MINE
    with pytest.raises(TopologyError) as caught:
        mine(MINE.replace(old, new))
    assert str(caught.value).splitlines() == lines


def test_a_profile_that_does_not_exist_is_one_line() -> None:
    with pytest.raises(TopologyError) as caught:
        profile.load("nowhere.yaml")
    assert str(caught.value) == "nowhere.yaml: no such file"


def test_every_shipped_profile_names_its_source_and_devices_of_the_catalogue() -> None:
    for name in catalog.names("profiles"):
        facts = profile.load(name)
        assert facts.source
        assert facts.layer_profiles
        assert set(facts.devices.values()) <= set(catalog.names("devices"))


def row(tp: int, model: Model, size: int = 1, scale: float = 1.0) -> MeasuredRow:
    return MeasuredRow(shape(model), 64, "bf16", tp, size, (scale, 2 * scale), (0.0, 0.0), (0.0, 0.0), 1e-12)


def test_the_lookup_of_a_row_ignores_names_and_tied_embeddings() -> None:
    found, words = lookup(Profile((row(1, SMALL),)), Workload(replace(SMALL, tied_embeddings=False), 8, 64), "bf16", 1, 1)
    assert (found, words) == (row(1, SMALL), "measured")


def test_measured_layers_hold_their_tensor_parallel_collectives_in_engine_and_closed_form() -> None:
    """Two layers of 1 + 2 s, three microbatches: 18 s, whatever the interconnect; by formula the slow wire is felt."""
    measured = Profile((row(2, builders.model(2)),))
    steps = {}
    for name, profiles in (("measured", measured), ("formula", None)):
        for bandwidth in (1e6, 1e12):
            spec = builders.device(profile=profiles)
            machines = fleet(cluster(devices=2, spec=spec, intra_node=wire(bandwidth=bandwidth)))
            plan = builders.plan(machines, tp=2, microbatches=3)
            steps[name, bandwidth] = simulate(plan).step_s
            assert plan_costs.step_seconds(plan) == pytest.approx(steps[name, bandwidth], rel=1e-9)
    assert steps["measured", 1e6] == pytest.approx(18.0, rel=1e-6)
    assert steps["measured", 1e6] == steps["measured", 1e12]
    assert steps["formula", 1e6] > 10 * steps["formula", 1e12]


def test_replicas_measured_and_by_formula_fold_and_stay_above_the_closed_form() -> None:
    """Pipelines of two stages on a measured and on an unmeasured cluster, messages scattered over the tensor-parallel ranks."""
    measured = builders.device("measured", profile=Profile((row(2, builders.model(4), scale=1e-3),)))
    slow = wire(bandwidth=1e8, latency=1e-5)
    machines = fleet(*(
        cluster(name, nodes=2, devices=2, spec=spec, intra_node=slow)
        for name, spec in (("a", measured), ("b", builders.device("formula")))
    ), trunks=(Trunk(("a", "b"), "infiniband", 1e9, 1e-4),))  # fmt: skip
    places = [Device(c, node, index) for node in range(2) for c in "ab" for index in range(2)]
    plan = builders.plan(machines, tp=2, pp=2, dp=2, microbatches=4, placement=tuple(places), schedule="1f1b-deepspeed")
    timeline = simulate(plan)
    assert timeline.step_s == pytest.approx(simulate(plan, unfolded(plan)).step_s, rel=1e-9)
    assert plan_costs.step_seconds(plan) <= timeline.step_s * (1 + 1e-9)


def sailor_plan() -> Plan:
    from holmes_sim import cases, validation

    found = {case.id: case for case in cases.load(validation.folder() / "sailor.yaml", profile.load("sailor"))}
    plan = found["sailor-mit-n4_d4"].plan
    assert plan is not None
    return plan


def test_plan_json_carries_the_rows_it_rests_on(tmp_path: Path) -> None:
    plan = sailor_plan()
    text = planfile.to_json(plan)
    (tmp_path / "plan.json").write_text(text)
    read = planfile.load(tmp_path / "plan.json")
    assert read == plan
    assert planfile.to_json(read) == text
    assert [c.node.device.profile for c in read.fleet.clusters] == [c.node.device.profile for c in plan.fleet.clusters]
    kept = json.loads(text)["topology"]["profile"]
    assert set(kept["devices"].values()) == {"rtx-3090", "rtx-2080-ti", "titan-rtx"}
    assert {facts["model"] for facts in kept["layer_profiles"]} == {"OPT-350"}


def test_a_fault_of_a_profile_in_plan_json_names_its_place() -> None:
    text = planfile.to_json(sailor_plan()).replace(
        '"gpu": "RTX-3090", "tp": 1, "micro_batch": 1,', '"gpu": "RTX-3091", "tp": 1, "micro_batch": 1,'
    )
    with pytest.raises(
        PlanError, match=r"topology\.profile\.layer_profiles\[\d+\]\.gpu: device 'RTX-3091' is not in the catalogue"
    ):
        planfile.from_text("plan.json", text)


def test_a_topology_may_name_its_profile(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    (tmp_path / "topo.yaml").write_text(
        "format: holmes-sim/topology/1\nname: one\nprofile: mine.yaml\n"
        "clusters: {c: {nodes: 1, node: {devices: {type: l40s, count: 2}, intra_node: pcie4}}}\n"
    )
    read = topology.load(tmp_path / "topo.yaml")
    assert read.fleet.clusters[0].node.device == profiled("l40s", mine())
    assert read.facts()["profile"]["layer_profiles"][0]["layer_forward_s"] == 0.25
