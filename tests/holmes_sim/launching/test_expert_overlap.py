"""What Megatron-Core requires of an overlap of expert communication, and the flag of the one beside shared experts."""

from __future__ import annotations

import pytest

from holmes_sim import exporters
from holmes_sim.exporters import megatron
from holmes_sim.launching.expert_overlap import unsupported
from tests import features

SHARED = features.EXPERTS | {"shared_ffn_hidden": 6144}
NAME = "overlap_expert_communication"
MICROBATCHES = {"overlap_expert_communication": True, "ep": 2, "vpp": 2, "schedule": "interleaved"}


def plan_of(model, precision="bf16", **config):
    return features.plan_of(features.Feature("", config, model=model, precision=precision))


def test_the_overlap_of_shared_experts_is_a_flag_of_megatron():
    plan = plan_of(SHARED, ep=2, overlap_shared_experts=True)
    assert list(exporters.unsupported("megatron", plan)) == []
    files = megatron.launch(plan).files
    assert "--moe-shared-expert-overlap" in files["megatron.args"].content.splitlines()
    assert "model.moe_shared_expert_overlap=true" in files["bridge-overrides.txt"].content.splitlines()
    without = megatron.launch(plan_of(SHARED, ep=2)).files["megatron.args"].content
    assert "overlap" not in without.replace("overlap-grad-reduce", "").replace("overlap-param-gather", "")


def test_other_frameworks_of_experts_refuse_experts_or_write_the_flag():
    plan = plan_of(SHARED, ep=2, overlap_shared_experts=True)
    for other in ("holmes", "deepspeed", "torchtitan"):
        assert list(exporters.unsupported(other, plan)), other


@pytest.mark.parametrize(("config", "model", "precision", "fault"), [
    ({}, features.EXPERTS, "bf16", ""),
    ({"vpp": 1, "schedule": "1f1b"}, features.EXPERTS, "bf16",
     f"{NAME} with pp 2 and vpp 1: its 1F1B pairs microbatches of virtual stages; vpp 2 or more, or pp 1"),
    ({"ep": 1}, features.EXPERTS, "bf16", f"{NAME} with ep 1: no token travels; ep 2 or more, or without it"),
    ({"dispatcher": "allgather"}, features.EXPERTS, "bf16",
     f"{NAME} with dispatcher allgather: it overlaps an all_to_all; dispatcher alltoall, deepep or hybridep"),
    ({"recompute": "full"}, features.EXPERTS, "bf16",
     f"{NAME} with recompute full: it runs layers in parts; recompute none or selective"),
    ({"recompute": "selective", "recompute_modules": ("moe",)}, features.EXPERTS, "bf16",
     f"{NAME} with recompute_modules moe: it runs experts in parts; other modules"),
    ({}, features.EXPERTS, "fp32", f"{NAME} with precision fp32: it is for bf16 and fp16; bf16"),
    ({}, features.EXPERTS | {"mtp_layers": 2}, "bf16",
     f"{NAME} with mtp_layers 2: one layer that predicts a further token at most; 1 or 0"),
])  # fmt: skip
def test_what_the_overlap_of_microbatches_requires(config, model, precision, fault):
    plan = plan_of(model, precision, **MICROBATCHES | config)
    assert list(unsupported(plan.config, plan.workload)) == ([fault] if fault else [])
    assert fault in ("", *exporters.unsupported("megatron", plan))
