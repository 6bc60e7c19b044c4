"""Copies beside gathers and scatters along the sequence, by hand: bytes of each kernel, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.kernels import compute, payloads, tensor_overlap
from sim.kernels.memory import layer_activation_bytes
from sim.plan.parallel_config import ParallelConfig
from sim.workload.kernels import Pass
from sim.workload.workload import Workload
from tests import builders

SBH = 2 * 64 * 96
"""Values of the hidden state of two sequences of 64 tokens at hidden size 96."""


def config(**facts: Any) -> ParallelConfig:
    return ParallelConfig(**{"tp": 4, "sequence_parallel": True, "copied_sequences": True, "microbatch_size": 2} | facts)


def copies(of: ParallelConfig, **shape: Any) -> list[tuple[str, float, float | None]]:
    precision = shape.pop("precision", "bf16")
    work = Workload(builders.model(**shape), 8, 64, precision=precision)
    kernels = compute.rank_kernels(work, of)
    names = ("gathered", "scattered")
    return [(k.name, k.moved / SBH, (k.backward or 0.0) / SBH) for k in kernels if isinstance(k, Pass) and k.name in names]


def test_what_is_gathered_and_scattered_is_read_and_written() -> None:
    """2 bytes a value, twice; in a backward a gather has become a scatter."""
    assert copies(config()) == [(name, 4.0, 4.0) for name in ("gathered", "scattered") * 2]


def test_products_in_fp8_gather_one_byte_and_scatter_two() -> None:
    assert copies(config(), precision="fp8") == [("gathered", 2.0, 4.0), ("scattered", 4.0, 2.0)] * 2


def test_asynchronous_ranks_copy_their_own_part_and_add_up_those_of_all() -> None:
    """A quarter is read and written; all four parts are read and one is written. Sums of input gradients are copied whole."""
    assert copies(config(tp_overlap=True)) == [("gathered", 1.0, 4.0), ("scattered", 2.5, 1.0)] * 2


def test_each_gradient_that_is_scattered_by_itself_is_copied() -> None:
    """Those of queries, keys and values, and of gate and up."""
    gathered = [("gathered", 4.0, 12.0), ("scattered", 4.0, 4.0), ("gathered", 4.0, 8.0), ("scattered", 4.0, 4.0)]
    assert copies(config(separate_scatters=True), mlp="swiglu") == gathered


def test_scatters_of_sums_overlap_nothing() -> None:
    """Two layers: four scatters of input gradients, which take 0.15 of their time from products if they overlap. In a forward
    the last of four parts of each of four scatters, and 0.15 of the other three."""
    work, payload = Workload(builders.model(), 8, 64), 2 * SBH

    def scattered(backward: bool, **facts: Any) -> float:
        of = config(tp_overlap=True, **facts)
        found = payloads.tensor_collectives(work, of, 2, False, False, backward)
        return sum(count for name, nbytes, count in found if (name, nbytes) == ("reduce_scatter", payload))

    for copied, backward, count in ((True, True, 4.0), (False, True, 0.6), (True, False, 1.45), (False, False, 1.45)):
        assert scattered(backward, copied_sequences=copied) == pytest.approx(count, rel=1e-12)
    hidden = [one for one in tensor_overlap.exchanges(work, config(tp_overlap=True), 2, True) if one[0] == "scatter"]
    assert hidden == []


@pytest.mark.parametrize("facts", [{"tp": 1}, {"sequence_parallel": False}, {"copied_sequences": False}])
def test_without_a_gather_or_with_the_sequence_first_nothing_is_copied(facts: dict[str, Any]) -> None:
    assert copies(config(**facts)) == []


def test_routed_experts_have_no_copies_of_their_own() -> None:
    assert len(copies(config(), experts=4, experts_per_token=2)) == 2


def test_a_layer_takes_longer_by_its_copies_and_keeps_none() -> None:
    """Eight passes of 3 us and 4 bytes a value at 1 TB/s; recomputation repeats those of the forward, but for the last one
    where it stops before it."""
    device, work = builders.device(), Workload(builders.model(), 8, 64)
    one = 3e-6 + 4 * SBH / 1e12

    def longer(**facts: Any) -> float:
        with_them, without = (
            sum(compute.layer_seconds(device, work, config(copied_sequences=copied, **facts))) for copied in (True, False)
        )
        return (with_them - without) / one

    assert longer() == pytest.approx(8, rel=1e-9)
    assert longer(recompute="full") == pytest.approx(12, rel=1e-9)
    assert longer(recompute="full", early_stop=True) == pytest.approx(11, rel=1e-9)
    kept = [layer_activation_bytes(work, replace(config(), copied_sequences=copied)) for copied in (True, False)]
    assert kept[0] == kept[1]
