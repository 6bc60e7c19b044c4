"""Measured runs of mixtures of experts: all are read and modelled, and the errors of Megatron-Core's are within bounds."""

from __future__ import annotations

import pytest

from holmes_sim import cases, validation
from tests.more import after, more

FOLDER = validation.folder() / "mixtures"
FOLDING = FOLDER / "moe_parallel_folding.yaml"


def test_every_run_has_a_plan() -> None:
    found = [case for path in sorted(FOLDER.glob("*.yaml")) for case in cases.load(path)]
    assert len(found) == 142
    assert [case.reason for case in found if case.plan is None] == []


def test_experts_are_on_the_mesh_that_the_source_says() -> None:
    """tp 4, pp 8, dp 4 of 128 GPUs: ep 8 whole experts on the 16 ranks of a stage."""
    plan = next(case.plan for case in cases.load(FOLDING) if case.id.endswith("g8t8-mcore-folding-g128-s4096-gb256"))
    assert plan is not None
    config = plan.config
    assert (config.etp, config.ep, config.expert_rows, config.edp) == (1, 8, 2, 2)
    assert next(group.ranks for group in plan.groups if group.kind == "ep") == tuple(range(8))


def test_a_run_uses_as_much_of_each_nvlink_domain_as_divides_its_hosts() -> None:
    """64 hosts of 4 in domains of 72 devices: four domains of 16 hosts."""
    plan = cases.load(FOLDER / "mlperf_v60_moe.yaml")[0].plan
    assert plan is not None
    (cluster,) = plan.fleet.clusters
    assert (cluster.nodes, cluster.node.count, cluster.node.hosts) == (4, 64, 16)
    assert sum(stage.layers for stage in plan.stages) == 61
    assert plan.workload.model.mtp_layers == 1


def test_recomputed_modules_of_a_case_are_selective_recomputation() -> None:
    plan = next(case.plan for case in cases.load(FOLDER / "megatron_moe_modelzoo.yaml") if "pp32" in case.id)
    assert plan is not None
    assert (plan.config.recompute, plan.config.modules) == ("selective", ("layernorm", "moe_act"))


def test_runs_that_pad_to_a_capacity_have_its_rows_on_every_rank() -> None:
    found = {case.id: case.plan.config for name in ("mindformers_ascend", "mindspeed_moe_and_long")
             for case in cases.load(FOLDER / f"{name}.yaml") if case.plan is not None}  # fmt: skip
    padded = {name.split("-g")[0]: config.load for name, config in found.items() if config.pad_to_capacity}
    assert padded == {
        "mindformers-qwen2-57b-a14b-900": 1.1, "mindformers-telechat2-39b-a12b-800t": 1.2, "mindspeed": 1.1,
    }  # fmt: skip


@pytest.mark.parametrize("name", after(0, ["g128-s4096-gb256", "g64-s4096-gb1024"], last=1))
def test_megatron_cores_runs_at_4096_tokens_are_met(name: str) -> None:
    """Its runs with pipelines, or with tensor and expert parallelism alone, in bf16; no constant but one was fitted to them."""
    wanted = tuple(case for case in cases.load(FOLDING) if case.id.endswith(name) and "fsdp" not in case.id)
    errors = [row.error for row in validation.validate(wanted, "default")]
    assert len(errors) >= 2
    assert max(abs(error) for error in errors if error is not None) < 0.1


@more
def test_layouts_of_qwen3_235b_are_in_their_order() -> None:
    """Megatron-MoE-ModelZoo 020b8136, best_practice/qwen3/readme.md, on 256 H100: 17.6 s with ep 32 and an overlapped exchange,
    17.6 with FSDP, 19.7 with ep 32. The two slower layouts of that table take a minute to simulate (docs/model.md)."""
    found = [case for case in cases.load(FOLDER / "megatron_moe_modelzoo.yaml") if "ep32" in case.id or "pp1cp1" in case.id]
    rows = sorted(validation.validate(found, "default"), key=lambda row: row.predicted_s or 0.0)
    assert [row.case.measured_s for row in rows] == [17.6, 17.6, 19.7]
    errors = {row.case.id: row.error or 0.0 for row in rows}
    overlapped = next(name for name in errors if name.endswith("overlap"))
    assert errors.pop(overlapped) == pytest.approx(0.098, abs=0.005), "its launches were set by another model and precision"
    assert all(abs(error) < 0.05 for error in errors.values())


def test_gpt_oss_on_eight_devices_is_predicted_too_fast() -> None:
    """MLPerf v6.0 on GB300, GB200 and B300, to which no number was fitted. Every device has all experts, so that none has more
    tokens than another. Three points less than before the cast of all weights, once a step, was counted: a step has one
    microbatch. Five points more since the share of the newest attention is known, six to eight less since hidden sums and
    gathers take memory. What is missing is not known."""
    found = tuple(case for case in cases.load(FOLDER / "mlperf_v60_moe.yaml") if case.id.endswith("-g8"))
    errors = {case.id.split("-")[-2]: row.error for case, row in zip(found, validation.validate(found, "default"), strict=True)}
    assert errors == pytest.approx({"gb300": -0.025, "gb200": -0.064, "b300": -0.081}, abs=0.002)
