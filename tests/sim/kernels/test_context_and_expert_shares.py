"""FLOPs, parameters, activations and optimizer state of a rank under context and expert parallelism."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.kernels import memory
from sim.plan.parallel_config import ParallelConfig
from sim.workload.kernels import Attention, Gemm, LayerSharding, layer_kernels
from sim.workload.model import Model
from sim.workload.workload import Workload
from tests.sim.context_and_experts import MIXTRAL


def test_mixtral_has_its_published_parameters_and_flops() -> None:
    """arXiv 2401.04088: 47 B parameters, of which a token uses 13 B; here exactly, from its config.json."""
    attention, expert, router = 4096 * (4096 + 2 * 1024) + 4096 * 4096, 3 * 4096 * 14336, 4096 * 8
    assert MIXTRAL.parameters == 46_702_792_704
    assert MIXTRAL.expert_parameters == 8 * expert
    active = MIXTRAL.parameters - 32 * 6 * expert
    assert active == pytest.approx(12.9e9, rel=2e-3)
    s = 4096
    token = 32 * (attention + 2 * expert + router) + 4096 * 32000
    assert Workload(MIXTRAL, 1, s).flops == pytest.approx(6.0 * s * token + 3 * 32 * 4 * s**2 * 4096, rel=1e-12)


def work(model: Model, cp: int = 1, ep: int = 1) -> float:
    """FLOPs of one layer on one rank."""
    return sum(
        k.flops for k in layer_kernels(model, 2, 1024, LayerSharding(2, True, cp, ep), 2) if isinstance(k, Gemm | Attention)
    )


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_context_parallel_ranks_divide_the_flops_of_a_layer(cp: int) -> None:
    assert cp * work(MIXTRAL, cp) == work(MIXTRAL)


@pytest.mark.parametrize("ep", [2, 4, 8])
def test_expert_parallelism_keeps_the_flops_of_a_rank(ep: int) -> None:
    assert work(MIXTRAL, ep=ep) == work(MIXTRAL)
    (up,) = (k for k in layer_kernels(MIXTRAL, 2, 1024, LayerSharding(ep=ep), 2) if isinstance(k, Gemm) and k.name == "up")
    assert (up.m, up.count) == (2 * 1024 * 2 * ep // 8, 8 // ep)


def test_shared_experts_compute_every_token() -> None:
    shared = replace(MIXTRAL, shared_ffn_hidden=1000)
    more = [k for k in layer_kernels(shared, 1, 512, LayerSharding(2, ep=8), 2) if isinstance(k, Gemm) and k.m == 512][3:]
    assert [(k.name, k.m, k.n, k.k, k.count) for k in more] == [("up", 512, 1000, 4096, 1), ("down", 512, 4096, 500, 1)]
    assert shared.layer_parameters - MIXTRAL.layer_parameters == 3 * 4096 * 1000
    assert shared.expert_parameters == MIXTRAL.expert_parameters


@pytest.mark.parametrize("ep", [2, 4, 8])
def test_the_ranks_of_an_expert_group_hold_every_expert_once(ep: int) -> None:
    workload = Workload(MIXTRAL, ep, 1024)
    config = ParallelConfig(dp=ep, ep=ep, num_microbatches=(1,) * ep)
    (dense_kind, dense, dense_sharing), (kind, experts, sharing) = memory.by_sharing(workload, config, 4, True, False)
    assert (dense_kind, dense_sharing, kind, sharing) == ("dp", ep, "edp", 1)
    assert ep * experts == 4 * MIXTRAL.expert_parameters
    assert dense + ep * experts == 4 * MIXTRAL.layer_parameters + MIXTRAL.embedding_parameters


def test_activations_fall_with_cp_and_weights_with_ep() -> None:
    workload = Workload(MIXTRAL, 8, 8192)

    def config(cp: int = 1, ep: int = 1) -> ParallelConfig:
        return ParallelConfig(dp=8 // cp, cp=cp, ep=ep, num_microbatches=(1,) * (8 // cp))

    whole, _ = memory.layer_activation_bytes(workload, config())
    for cp in (2, 4, 8):
        assert memory.layer_activation_bytes(workload, config(cp)) == (whole / cp, 0.0)
    bytes_of = [memory.rank_bytes(workload, config(ep=ep), 4, 1, True, True) for ep in (1, 2, 4, 8)]
    assert bytes_of == sorted(bytes_of, reverse=True)
    saved = 4 * MIXTRAL.expert_parameters * (1 - 1 / 8) * (2 + 4)  # their optimizer state is shared by 8 ranks in both cases
    assert bytes_of[0] - bytes_of[3] == pytest.approx(saved, rel=1e-12)


def test_optimizer_state_is_divided_over_the_ranks_with_the_same_weights() -> None:
    workload, config = Workload(MIXTRAL, 2, 1024), ParallelConfig(dp=2, cp=4, num_microbatches=(1, 1))
    assert memory.state_bytes(1e6, workload, config) == pytest.approx(1e6 * (2 + 4 + 12 / 8))
    assert memory.state_bytes(1e6, workload, config, sharing=2) == pytest.approx(1e6 * (2 + 4 + 12 / 2))


def test_zero_3_divides_state_over_the_ranks_with_the_same_weights() -> None:
    """ZeRO 3 over dp 4 x cp 2, ep 4: dense weights over eight ranks, experts over two; a layer is
    computed while two more are gathered."""
    workload = Workload(MIXTRAL, 4, 1024)
    config = ParallelConfig(dp=4, cp=2, ep=4, num_microbatches=(1,) * 4, zero_stage=3)
    assert memory.state_bytes(8e6, workload, config) == pytest.approx(8e6 * (2 + 4 + 12) / 8)
    assert memory.state_bytes(8e6, workload, config, sharing=2) == pytest.approx(8e6 * (2 + 4 + 12) / 2)
    layer = MIXTRAL.layer_parameters - MIXTRAL.expert_parameters * 3 / 4
    assert memory.gathered_bytes(workload, config) == pytest.approx(layer * (3 * 2 + 4))
    alone = replace(config, ep=8)  # each rank has its own experts: they are neither gathered nor reduced
    dense = MIXTRAL.layer_parameters - MIXTRAL.expert_parameters
    assert memory.gathered_bytes(workload, alone) == pytest.approx(dense * (3 * 2 + 4))


@pytest.mark.parametrize(("shared", "sharding", "router", "dispatch"), [
    (0, LayerSharding(), 2 * 1024 * 4096 * 2, 2 * 1024 * (8 * 4 + 2 * 24 + 2 * 4)),
    (4096, LayerSharding(), 0, 2 * 1024 * (8 * 4 + 2 * 24 + 2 * 4)),
    (0, LayerSharding(2, True, ep=2, etp=2), 1024 * 4096 * 2, 1024 * (8 * 4 + 2 * 24) + 2048 * 2 * 4),
    (0, LayerSharding(load=1.5, sent=1.25), 2 * 1024 * 4096 * 2, 2 * 1024 * (8 * 4 + 2.5 * 24 + 3 * 4)),
])  # fmt: skip
def test_a_router_keeps_its_input_and_what_it_says_of_each_copy(
    shared: int, sharding: LayerSharding, router: float, dispatch: float
) -> None:
    """Its input is that of shared experts, too; scores are of the tokens of its own slice of the sequence."""
    model = replace(MIXTRAL, shared_ffn_hidden=shared)
    saved = {kernel.name: kernel.saved for kernel in layer_kernels(model, 2, 1024, sharding, 2)}
    assert (saved["router"], saved["dispatch"]) == (router, dispatch)
