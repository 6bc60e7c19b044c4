"""Passes of a ring of context parallelism, against a count of the kernels of each rank, step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.kernels import compute, formulas, payloads
from sim.kernels.launches import launch_seconds
from sim.kernels.ring_copies import with_ring
from sim.plan.parallel_config import ParallelConfig
from sim.workload.kernels import Attention, Pass
from sim.workload.model import Model
from sim.workload.workload import Workload
from tests import builders

LLAMA_8B = Model("8b", 32, 4096, 32, 8, 14336, 128256, mlp="swiglu")


def ring(core: Attention, **facts: bool) -> Pass:
    """The pass that stands for a ring of cp ranks."""
    _, found = with_ring((core,), 2, ParallelConfig(cp=core.cp, **facts))
    assert isinstance(found, Pass)
    return found


def core(cp: int, heads: int = 8, kv_heads: int = 8, value_dim: int = 0) -> Attention:
    return Attention("attention", 1, heads, kv_heads, 64, 64 * cp, cp=cp, value_dim=value_dim, steps=cp)


def kernels_of(rank: int, one: Attention) -> tuple[list[float], list[float]]:
    """Bytes of each kernel of a rank, (forward, backward), as Transformer Engine launches them for tensors in bf16 whose
    sequence comes first: a copy reads and writes each value, a sum reads two and writes one."""
    cp, tokens, value = one.cp, one.batch * one.seq_len / one.cp, one.value_dim or one.head_dim
    q, out, lse = tokens * one.heads * one.head_dim * 2, tokens * one.heads * value * 2, tokens * one.heads * 4
    keys = (tokens * one.kv_heads * one.head_dim * 2, tokens * one.kv_heads * value * 2)
    forward = [2 * sum(keys), 2 * lse, 2 * out]
    for step in range(1, cp):
        share = 1 if step <= rank else 0.5
        forward += [3 * share * lse, 3 * share * out]
    backward = [2 * sum(keys)]
    for step in range(cp):
        whole, first = step >= cp - rank - 1, cp - rank - 1
        if step > first:
            backward.append(3 * q)
        elif step == first:
            backward += [2 * q] if rank == cp - 1 else [q, 1.5 * q]
        else:
            backward.append(1.5 * q if step else q)
        for part in keys:
            if step == cp - 1:
                backward += [1.5 * part, part] if rank == 0 else [3 * part]
            elif whole:
                backward.append(part if step == 0 and rank == cp - 1 else 1.5 * part)
            else:
                backward.append(3 * part if step else 2 * part)
    return forward, backward


@pytest.mark.parametrize("cp", [2, 3, 4, 8])
@pytest.mark.parametrize(("heads", "kv_heads", "value_dim"), [(8, 8, 0), (8, 2, 0), (16, 1, 0), (8, 8, 32)])
def test_a_ring_moves_what_its_last_rank_moves(cp: int, heads: int, kv_heads: int, value_dim: int) -> None:
    """No other rank moves more forward, and with grouped queries none moves more in all."""
    one = core(cp, heads, kv_heads, value_dim)
    found = ring(one)
    ranks = [kernels_of(rank, one) for rank in range(cp)]
    forward, backward = ranks[-1]
    assert (found.moved, found.backward) == pytest.approx((sum(forward), sum(backward)), rel=1e-12)
    assert found.launches == (len(forward), len(backward))
    assert max(sum(ahead) for ahead, _ in ranks) == sum(forward)
    if kv_heads < heads:
        assert max(sum(map(sum, both)) for both in ranks) == sum(map(sum, ranks[-1]))


def test_bytes_of_a_ring_of_torch() -> None:
    """Two ranks, 64 tokens each, 8 heads of 64 (32,768 values of queries), keys and values of 8 heads whatever the model has.
    Forward: keys and values joined, one sum of two results. Backward: joined again; gradients of queries written in fp32, then
    added and written in bf16; those of keys and values written in fp32, added to after a step, and written in bf16."""
    found = ring(core(2, kv_heads=2), gathered_keys=True)
    values, keys = 64 * 8 * 64, 2 * 64 * 8 * 64
    assert found.moved == 4 * keys + (2 + 2 + 2) * values
    assert found.backward == 4 * keys + (6 + 2 + 4 + 2) * values + (6 + (1 + 4 + 4) + 6) * keys
    assert found.launches == (2, 6)


@pytest.mark.parametrize("facts", [{"cp": 1}, {"cp": 4, "cp_algo": "ulysses"}])
def test_no_passes_without_a_ring(facts: dict[str, object]) -> None:
    workload = Workload(LLAMA_8B, 4, 8192)
    assert not [k for k in compute.rank_kernels(workload, ParallelConfig(**facts)) if k.name == "ring"]  # type: ignore[arg-type]


def test_a_layer_takes_longer_by_its_ring_and_its_launches() -> None:
    """cp 2: 5 kernels forward and 7 backward of 3 us each, and the host launches 5 + 2 more kernels than the 30 of a layer."""
    workload, config = Workload(LLAMA_8B, 4, 8192), ParallelConfig(cp=2)
    device = builders.device(speed=1e15, memory_bandwidth=1e12, elementwise_efficiency=1.0)
    kernels = compute.rank_kernels(workload, config)
    (found,) = [kernel for kernel in kernels if kernel.name == "ring"]
    assert isinstance(found, Pass) and found.backward is not None
    ahead = formulas.forward_seconds(found, device, "bf16", 2, "flash")
    back = formulas.input_gradient_seconds(found, device, "bf16", 2, "flash")
    assert (ahead, back) == pytest.approx((15e-6 + found.moved / 1e12, 21e-6 + found.backward / 1e12), rel=1e-12)
    alone = tuple(kernel for kernel in kernels if kernel is not found)
    slow = replace(device, launch=1.0)
    assert launch_seconds(slow, workload, config, kernels) == pytest.approx((37 / 30, 1.3 * 37 / 30), rel=1e-12)
    whole, without = (compute._parts(some, 0.0, device, workload, config)[:2] for some in (kernels, alone))
    assert [a - b for a, b in zip(whole, without, strict=True)] == pytest.approx([ahead, back], rel=1e-9)


def test_torch_gathers_a_head_of_keys_for_each_of_queries() -> None:
    """8B, 8,192 tokens, cp 4: 32 heads of 128 keys and values in place of 8, hidden by the first of four steps. In a backward
    their gradients travel in fp32 four times, as the ring's bytes are counted for three."""
    workload, config = Workload(LLAMA_8B, 4, 8192), ParallelConfig(cp=4, gathered_keys=True)
    keys = 8192 * 32 * 2 * 128 * 2
    assert payloads.ring_exchanges(workload, config, 5, False) == (("F", keys, 5.0),)
    ((_, nbytes, _),) = payloads.ring_exchanges(workload, config, 5, True)
    assert nbytes == pytest.approx(keys + 2 * keys * 4 / 3, rel=1e-12)
    device = builders.device(speed=1e15)
    attention = [kernel for kernel in compute.rank_kernels(workload, config) if isinstance(kernel, Attention)]
    for backward, share in ((False, 1 / 4), (True, 3 / 4)):
        whole = sum(formulas.attention_seconds(one, device, "bf16", 2, "flash", backward) for one in attention)
        assert compute.ring_seconds(device, workload, config, backward) == pytest.approx(share * whole, rel=1e-12)
