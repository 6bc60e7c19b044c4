"""Context parallelism by gathers: payloads, and passes counted chunk by chunk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.kernels import compute, payloads
from sim.kernels.key_gathers import with_gathers
from sim.plan.parallel_config import ParallelConfig
from sim.workload.kernels import Attention, Pass
from sim.workload.model import Model
from sim.workload.workload import Workload
from tests import builders

LLAMA_8B = Model("8b", 32, 4096, 32, 8, 14336, 128256, mlp="swiglu")


def test_payloads_of_gathers_and_scatters() -> None:
    """8B on tp 2, 8,192 tokens: 4 heads of keys of 128, and as many of values, once forward, gathered again and scattered back
    in a backward; with full recomputation gathered a third time."""
    workload, config = Workload(LLAMA_8B, 4, 8192), ParallelConfig(cp=4, tp=2, cp_algo="all_gather")
    keys = 8192 * 4 * 128 * 2
    assert payloads.ring_exchanges(workload, config, 3, False) == ()
    assert payloads.layer_collectives(workload, config, 3, False) == (("cp", "all_gather", keys, 6.0),)
    back = (("cp", "all_gather", keys, 6.0), ("cp", "reduce_scatter", keys, 6.0))
    assert payloads.layer_collectives(workload, config, 3, True) == back
    again = replace(config, recompute="full")
    assert payloads.layer_collectives(workload, again, 3, True) == (("cp", "all_gather", keys, 12.0), back[1])


@pytest.mark.parametrize("cp", [2, 3, 8])
@pytest.mark.parametrize("value_dim", [0, 32])
def test_passes_are_those_of_the_chunks_of_every_rank(cp: int, value_dim: int) -> None:
    core = Attention("attention", 2, 8, 2, 64, 128 * cp, cp=cp, value_dim=value_dim)
    _, found = with_gathers((core,), 2, ParallelConfig(cp=cp, cp_algo="all_gather"))
    assert isinstance(found, Pass)
    chunk = 2 * 64  # tokens of both sequences
    parts = [2 * 64 * 2.0, 2 * (value_dim or 64) * 2.0]  # bytes of a token's keys, and of its values
    for rank in range(cp):
        forward = [2 * cp * 2 * chunk * part for part in parts] + [2 * chunk * 8 * (value_dim or 64) * 2.0] * 2
        backward = [2 * cp * 2 * chunk * part for part in parts] * 2 + [cp * 2 * chunk * part for part in parts]
        for seen in (rank + 1, 2 * cp - rank):
            backward += [3 * seen * chunk * part for part in parts] + [2 * chunk * 8 * 64 * 2.0]
        assert (found.moved, found.backward) == pytest.approx((sum(forward), sum(backward)), rel=1e-12)
        assert found.launches == (len(forward), len(backward))


def test_kernels_of_gathered_keys_are_those_of_the_whole_sequence() -> None:
    """No step of a ring: attention as fast as that of all-to-alls, whose kernels go through all keys as well."""
    workload, device = Workload(LLAMA_8B, 4, 8192), builders.device(speed=1e15)
    configs = [ParallelConfig(cp=4, cp_algo=name) for name in ("all_gather", "ulysses")]
    kernels = [compute.rank_kernels(workload, config) for config in configs]
    cores = [next(one for one in some if isinstance(one, Attention)) for some in kernels]
    assert cores[0] == cores[1] and cores[0].causal_length(backward=True) == 8192
    gathered, exchanged = (compute.layer_seconds(device, workload, config)[0] for config in configs)
    assert gathered > exchanged
