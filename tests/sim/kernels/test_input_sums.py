"""Tests for the sums of input gradients of products that have weights of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.kernels import payloads
from sim.kernels.input_sums import further_sums
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload
from tests import builders as make

LLAMA = make.model(4, mlp="swiglu")


def count(workload: Workload, config: ParallelConfig, backward: bool) -> float:
    """All_reduces of tensor parallelism of a stage of four layers between others."""
    ((operation, _, number),) = payloads.tensor_collectives(workload, config, 4, first=False, last=False, backward=backward)
    assert operation == "all_reduce"
    return number


@pytest.mark.parametrize(
    ("qkv", "gate", "sums"), [(False, False, 2), (False, True, 3), (True, False, 4), (True, True, 5)], ids=str
)
def test_each_product_with_an_operator_of_its_own_has_a_sum_in_the_backward(qkv: bool, gate: bool, sums: int) -> None:
    """Three products read the input of attention, two that of a gated MLP."""
    workload = Workload(LLAMA, 64, 8)
    config = ParallelConfig(tp=2, pp=1, dp=1, separate_qkv=qkv, separate_gate=gate)
    assert count(workload, config, backward=True) == 4 * sums
    assert count(workload, config, backward=False) == 4 * 2


def test_recomputation_repeats_the_sums_of_results_alone() -> None:
    workload, config = Workload(LLAMA, 64, 8), ParallelConfig(tp=2, pp=1, dp=1, recompute="full", separate_qkv=True)
    assert count(workload, config, backward=True) == 4 * (4 + 2)


def test_models_without_a_gate_have_one_product_to_sum_for() -> None:
    config = ParallelConfig(tp=2, pp=1, dp=1, separate_gate=True)
    assert further_sums(Workload(make.model(4, mlp="gelu"), 64, 8), config) == 0


def test_sequence_parallelism_gathers_an_input_once() -> None:
    workload = Workload(LLAMA, 64, 8)
    plain = ParallelConfig(tp=2, pp=1, dp=1, sequence_parallel=True)
    own = replace(plain, separate_qkv=True, separate_gate=True)
    one, other = (payloads.tensor_collectives(workload, each, 4, False, False, True) for each in (plain, own))
    assert one == other


@pytest.mark.parametrize(("mlp", "experts", "scatters"), [("swiglu", 0, 5), ("gelu", 0, 4), ("swiglu", 4, 3)])
def test_each_product_may_scatter_the_gradient_of_its_input(mlp: str, experts: int, scatters: int) -> None:
    """The backward that torch compiles of a Llama layer with projections of their own (DTensor, input_layouts Shard(1)) has
    five reduce_scatters and two gathers, its forward two of each."""
    workload = Workload(make.model(4, mlp=mlp, experts=experts, experts_per_token=min(experts, 2)), 64, 8)
    config = ParallelConfig(tp=2, pp=1, dp=1, sequence_parallel=True, separate_scatters=True)

    def counts(backward: bool) -> dict[str, float]:
        found: dict[str, float] = {}
        payload = payloads.activation_bytes(workload, config)
        for operation, nbytes, number in payloads.tensor_collectives(workload, config, 4, False, False, backward):
            if nbytes == payload:
                found[operation] = found.get(operation, 0.0) + number
        return found

    blocks = 1 if experts else 2
    assert counts(False)["reduce_scatter"] == 4 * blocks
    assert counts(True) == {"all_gather": 4 * blocks, "reduce_scatter": 4 * scatters}


def test_asynchronous_tensor_parallelism_scatters_sums() -> None:
    workload = Workload(LLAMA, 64, 8)
    plain = ParallelConfig(tp=2, pp=1, dp=1, sequence_parallel=True, tp_overlap=True)
    own = replace(plain, separate_scatters=True)
    one, other = (payloads.tensor_collectives(workload, each, 4, False, False, True) for each in (plain, own))
    assert one == other
