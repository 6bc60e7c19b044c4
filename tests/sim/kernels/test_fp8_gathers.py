"""Gathers of weights in fp8: which weights take 1 byte, and that engine and closed form send the same bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic.plan_costs import step_seconds
from sim.engine.engine import simulate
from sim.formats import catalog
from sim.kernels import memory, payloads
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload
from tests import builders

LLAMA, MIXTRAL = catalog.model("llama-3-8b"), catalog.model("mixtral-8x7b")


def config(**facts: object) -> ParallelConfig:
    return ParallelConfig(dp=4, num_microbatches=(1,) * 4, fp8_param_gather=True, **facts)  # type: ignore[arg-type]


def test_linear_layers_take_one_byte_and_all_other_weights_two() -> None:
    """Llama 3 8B: 8,030,261,248 parameters, of which 32 layers of 4096 x (4096 + 2 x 1024) + 4096^2 + 3 x 4096 x 14336."""
    layer = 4096 * (4096 + 2 * 1024) + 4096**2 + 3 * 4096 * 14336
    found = payloads.parameter_bytes(Workload(LLAMA, 8, 4096, "fp8"), config(tp=2), 32, True, True)
    assert found == (("dp", (2 * 8_030_261_248 - 32 * layer) / 2),)


def test_a_gpt_gathers_biases_in_two_bytes() -> None:
    """GPT 1.7B: 24 layers of 12 h^2 in matrices and 13 h in biases and norms, h 2304; no embedding and no head."""
    model, hidden = catalog.model("gpt-1.7b"), 2304
    found = payloads.parameter_bytes(Workload(model, 8, 2048, "fp8"), config(), model.layers, False, False)
    assert found == (("dp", model.layers * (12 * hidden**2 + 2 * 13 * hidden)),)


def test_experts_take_one_byte_in_their_own_group_and_the_router_two() -> None:
    """Mixtral 8x7B, ep 2: four experts of 3 x 4096 x 14336 on a rank; router 4096 x 8 and norms 2 x 4096 stay in bf16."""
    dense, expert = 4096 * (4096 + 2 * 1024) + 4096**2, 3 * 4096 * 14336
    found = payloads.parameter_bytes(Workload(MIXTRAL, 8, 4096, "fp8"), config(ep=2), 3, False, False)
    assert dict(found) == {"dp": 3 * (dense + 2 * (4096 * 8 + 2 * 4096)), "edp": 3 * 4 * expert}


@pytest.mark.parametrize("precision", ["bf16", "mxfp8", "nvfp4"])
def test_other_precisions_gather_as_before(precision: str) -> None:
    workload, shape = Workload(LLAMA, 8, 4096, precision), (32, True, True)
    plain = replace(config(), fp8_param_gather=False)
    assert payloads.parameter_bytes(workload, config(), *shape) == payloads.parameter_bytes(workload, plain, *shape)
    assert payloads.parameter_bytes(workload, config(), *shape) == (("dp", 2 * 8_030_261_248),)


def test_gradients_and_memory_stay_as_they_are() -> None:
    """An fp8 weight and its transposed copy take the two bytes of a bf16 weight."""
    workload, plain = Workload(LLAMA, 8, 4096, "fp8"), replace(config(), fp8_param_gather=False)
    for one in (payloads.gradient_bytes, memory.by_sharing):
        assert one(workload, config(), 32, True, True) == one(workload, plain, 32, True, True)
    assert memory.rank_bytes(workload, config(), 32, 1, True, True) == memory.rank_bytes(workload, plain, 32, 1, True, True)


@pytest.mark.parametrize("zero_stage", [1, 3])
@pytest.mark.parametrize("overlap", [False, True])
def test_the_engine_sends_what_the_closed_form_counts(zero_stage: int, overlap: bool) -> None:
    device = builders.device(peak=(("bf16", 1e14), ("fp8", 2e14)))
    machines = builders.fleet(builders.cluster(nodes=2, devices=2, spec=device))
    plan = builders.plan(machines, dp=4, layers=(6,), shape={"hidden": 3072}, precision="fp8")
    facts = {"zero_stage": zero_stage, "overlap_param_gather": overlap, "overlap_grad_reduce": overlap}
    steps = []
    for narrow in (False, True):
        one = replace(plan, config=replace(plan.config, fp8_param_gather=narrow, **facts))
        steps.append(simulate(one).step_s)
        assert steps[-1] >= step_seconds(one) * (1 - 1e-9)
        if not overlap and zero_stage == 1:
            assert steps[-1] == pytest.approx(step_seconds(one), rel=1e-9)
    assert steps[1] < steps[0]
