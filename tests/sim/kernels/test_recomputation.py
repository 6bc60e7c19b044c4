"""Selective recomputation: bytes that modules free, by the counts of arXiv 2205.05198, and what they compute again."""

from __future__ import annotations

from typing import Any

import pytest

from sim.kernels import compute, lowering
from sim.kernels.memory import layer_activation_bytes
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload
from tests import builders
from tests.builders import cluster, fleet

SBH = 64 * 96
EXPERTS = {"experts": 4, "experts_per_token": 2}
SHARED = EXPERTS | {"shared_ffn_hidden": 96}


def config(*modules: str, **facts: Any) -> ParallelConfig:
    return ParallelConfig(recompute="selective", recompute_modules=modules, **facts)


def workload(**shape: Any) -> Workload:
    return Workload(builders.model(**shape), 8, 64)


@pytest.mark.parametrize(
    ("modules", "shape", "kept", "freed"),
    [
        # norms 4, attention 11 and MLP 19 s b h, each norm's output 2 and the MLP's activations 16 of them
        (("layernorm",), {}, 30, 4),
        (("mlp",), {}, 18, 16),
        (("layernorm", "mlp"), {}, 14, 20),
        # norms 4, attention 11, mask 1, router 2; two experts a token: inputs 4, activations 16 before and after the function
        (("moe_act",), EXPERTS, 38, 16),
        (("layernorm",), EXPERTS, 50, 4),
        (("layernorm", "moe_act"), EXPERTS, 34, 20),
        (("moe",), EXPERTS, 18, 36),
        (("moe", "moe_act"), EXPERTS, 18, 36),
        (("moe", "layernorm"), EXPERTS, 14, 40),
        # and shared experts of a quarter of the width, which share the input of the router: activations 2 and 2
        (("layernorm",), SHARED, 54, 4),
        (("moe_act",), SHARED, 42, 16),
        (("moe",), SHARED, 18, 40),
    ],
)
def test_modules_free_what_they_recompute(modules: tuple[str, ...], shape: dict[str, Any], kept: int, freed: int) -> None:
    """A router keeps 64 tokens x (4 scores of 4 bytes, 2 copies with indices of 24 bytes and a probability of 4)."""
    router = 64 * (4 * 4 + 2 * 24 + 2 * 4) if shape else 0
    sizes = kept * SBH + router * ("moe" not in modules), freed * SBH + router * ("moe" in modules)
    assert layer_activation_bytes(workload(**shape), config(*modules)) == sizes


@pytest.mark.parametrize(
    ("sequence_parallel", "modules", "kept"),
    [
        (False, ("layernorm",), 10 + 24 / 2 - 4),
        (False, ("mlp",), 10 + 24 / 2 - 16 / 2),
        (True, ("layernorm",), (34 - 4) / 2),
        (True, ("mlp",), (34 - 16) / 2),
    ],
)
def test_tensor_parallel_ranks_free_their_part(sequence_parallel: bool, modules: tuple[str, ...], kept: float) -> None:
    found, _ = layer_activation_bytes(workload(), config(*modules, tp=2, sequence_parallel=sequence_parallel))
    assert found == kept * SBH


def test_scores_are_freed_with_the_attention_core_alone() -> None:
    """5 bytes for each of 24 x 64 x 64 scores of an unfused core."""
    scores = 5 * 24 * 64 * 64
    assert layer_activation_bytes(workload(), config("layernorm", attention="unfused"))[0] == 30 * SBH + scores
    assert layer_activation_bytes(workload(), config("layernorm", "core_attn", attention="unfused"))[0] == 30 * SBH
    assert layer_activation_bytes(workload(), config("layernorm", "core_attn"))[0] == 30 * SBH


def test_norms_are_computed_again() -> None:
    """Two passes of 3 us that read and write 64 x 96 values of 2 bytes at 1 TB/s."""
    of = builders.device(), workload()
    (forward, none), (same, again) = (compute.layer_seconds(*of, one) for one in (ParallelConfig(), config("layernorm")))
    assert (same, again - none) == (forward, pytest.approx(2 * (3e-6 + 2 * 12_288e-12), rel=1e-9))


@pytest.mark.parametrize(
    ("module", "shape", "kernels"),
    [
        ("mlp", {}, {"up", "activation", "down"}),
        ("moe", EXPERTS, {"router", "dispatch", "up", "activation", "down"}),
        ("moe_act", EXPERTS, {"activation"}),
    ],
)
def test_a_module_computes_its_forward_again(module: str, shape: dict[str, Any], kernels: set[str]) -> None:
    of = builders.device(), workload(**shape)
    once = {kernel.name: kernel.forward for kernel in compute.kernel_times(*of, ParallelConfig())}
    (_, none), (_, again) = (compute.layer_seconds(*of, one) for one in (ParallelConfig(), config(module)))
    assert again - none == pytest.approx(sum(once[name] for name in kernels), rel=1e-9)


def test_a_recomputed_mlp_that_stops_early_leaves_out_its_last_product() -> None:
    """Experts are weighted after their last product, so they are recomputed whole."""
    for module, shape, kernels in (("mlp", {}, {"up", "activation"}), ("moe", EXPERTS, set[str]())):
        of = builders.device(), workload(**shape)
        once = {kernel.name: kernel.forward for kernel in compute.kernel_times(*of, ParallelConfig())}
        early, whole = (compute.layer_seconds(*of, config(module, early_stop=stop))[1] for stop in (True, False))
        assert whole - early == pytest.approx(once["down"] if kernels else 0.0, rel=1e-9)


def test_a_recomputed_mlp_that_stops_early_repeats_no_reduction() -> None:
    """The all_reduce of an MLP follows its last product."""
    facts: dict[str, Any] = {"recompute": "selective", "recompute_modules": ("mlp",), "early_stop": True}
    plan = builders.plan(fleet(cluster(devices=6)), tp=2, pp=3, layers=(1, 3, 1), **facts)
    assert [a.times for a in lowering.program(plan, 1, 1) if a.operation == "all_reduce"] == [6.0, 6.0]


@pytest.mark.parametrize(("modules", "times"), [((), [6.0, 6.0]), (("layernorm",), [6.0, 6.0]), (("mlp",), [6.0, 9.0])])
def test_a_recomputed_mlp_repeats_its_collectives(modules: tuple[str, ...], times: list[float]) -> None:
    """Two all_reduces for each of three layers, one more for each MLP; the stage has neither embedding nor head."""
    facts = {"recompute": "selective", "recompute_modules": modules}
    plan = builders.plan(fleet(cluster(devices=6)), tp=2, pp=3, layers=(1, 3, 1), **facts)
    assert [a.times for a in lowering.program(plan, 1, 1) if a.operation == "all_reduce"] == times


@pytest.mark.parametrize(("module", "times"), [("moe", [6.0, 12.0]), ("moe_act", [6.0, 6.0])])
def test_recomputed_experts_exchange_their_tokens_again(module: str, times: list[float]) -> None:
    facts = {"recompute": "selective", "recompute_modules": (module,)}
    plan = builders.plan(fleet(cluster(devices=2)), dp=2, ep=2, layers=(3,), shape=EXPERTS, **facts)
    assert [a.times for a in lowering.program(plan, 0, 1) if a.operation == "all_to_all"] == times
