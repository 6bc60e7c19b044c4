"""Kernels, parameters and tokens of each set of ranks."""

from __future__ import annotations

from sim.disaggregation import shares
from sim.workload.kernels import Gemm
from tests.sim.disaggregation.builders import machines, stage


def test_parameters_of_both_sets_are_the_model():
    whole = stage(machines(2, 2), batch=4, kept=(0, 4))
    model = whole.workload.model
    experts = 2 * shares.attention_rank_experts(whole) + 2 * shares.expert_rank_experts(whole)
    assert (shares.attention_rank_experts(whole), shares.expert_rank_experts(whole)) == (2, 6)
    assert shares.dense_parameters(whole) + experts * shares.expert_size(whole) == model.parameters


def test_rows_of_experts():
    """Two attention ranks route 64 tokens each; of eight experts they keep four."""
    whole = stage(machines(2, 2), batch=4, kept=(0, 4))
    assert shares.expert_share(whole, 0) == (4, 64)
    assert shares.expert_share(whole, 4) == (2, 32)
    assert shares.kept_share(whole, 4) == (2, 32)
    assert shares.kept_share(whole, 0) == (0, 0)


def test_kernels_of_attention_have_no_routed_experts():
    whole = stage(shape={"shared_ffn_hidden": 96})
    before, after = shares.attention_kernels(whole)
    assert [kernel.name for kernel in before] == [
        "norm", "qkv", "heads", "attention", "projection", "residual", "norm", "router", "dispatch", "up", "activation", "down",
    ]  # fmt: skip
    assert [kernel.name for kernel in after] == ["residual"]
    ups = [kernel for kernel in before if isinstance(kernel, Gemm) and kernel.name == "up"]
    assert [(up.m, up.n, up.k, up.count) for up in ups] == [(64, 2 * 96, 96, 1)]


def test_kernels_of_experts():
    whole = stage(machines(2, 2), batch=4)
    sort, up, activation, down = shares.expert_kernels(whole, shares.expert_share(whole, 0))
    assert (sort.name, sort.moved) == ("sort", 4 * 64 * 96 * 2)
    assert (up.m, up.n, up.k, up.count) == (16, 2 * 192, 96, 4)
    assert (down.m, down.n, down.k, down.count) == (16, 96, 192, 4)
    assert activation.moved == 64 * 3 * 192 * 2
    assert shares.expert_kernels(whole, shares.kept_share(whole, 0)) == ()
