"""Memory, time and messages of stages with frozen weights, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.kernels import compute, frozen_weights, memory, payloads
from sim.plan.parallel_config import ParallelConfig
from sim.workload.adapter import Adapter
from sim.workload.workload import Workload
from tests import builders

MODEL = builders.model(layers=4, hidden=64, heads=4, kv_heads=4, ffn_hidden=96, mlp="swiglu", vocab=256, tied_embeddings=True)
LINEAR, NORMS = 4 * 64 * 64 + 3 * 64 * 96, 2 * 64
TRAINED = 8 * (4 * (64 + 64) + 3 * (64 + 96))
WHOLE = Workload(MODEL, 8, 16)
LORA, QLORA = (replace(WHOLE, adapter=Adapter(8, base_precision=base)) for base in ("", "nf4"))
NF4 = 4.126953125 / 8


def config(**values: object) -> ParallelConfig:
    return ParallelConfig(num_microbatches=(2,) * values.get("dp", 1), **{"zero_stage": 0} | values)


def test_frozen_weights_have_their_own_bytes() -> None:
    assert frozen_weights.trained_layer_parameters(LORA, config()) == TRAINED
    assert frozen_weights.layer_bytes(WHOLE, config()) == 0
    assert frozen_weights.layer_bytes(LORA, config()) == 2 * (LINEAR + NORMS)
    assert frozen_weights.layer_bytes(QLORA, config(tp=2)) == (NF4 * LINEAR + 2 * NORMS) / 2
    ends = 256 * 64 + 64  # a tied embedding once, and the final norm
    assert memory.frozen_bytes(LORA, config(), 4, True, True) == 2 * (4 * (LINEAR + NORMS) + ends)
    assert frozen_weights.written_out_bytes(LORA, config()) == 0
    assert frozen_weights.written_out_bytes(QLORA, config()) == 2 * 64 * 96


@pytest.mark.parametrize(("workload", "stored"), [(LORA, 2.0), (QLORA, NF4)])
def test_a_rank_keeps_state_of_adapters_alone(workload: Workload, stored: float) -> None:
    held = memory.by_sharing(workload, config(), 4, False, False)
    assert held == (("dp", 4 * TRAINED, 1),)
    whole, own = (memory.rank_bytes(one, config(), 4, 0, False, False) for one in (WHOLE, workload))
    frozen = 4 * (LINEAR * stored + 2 * NORMS)
    written_out = 2 * 64 * 96 if stored < 1 else 0
    assert own - frozen - written_out - 18 * 4 * TRAINED == pytest.approx(whole - 18 * 4 * (LINEAR + NORMS))


def test_zero_3_shards_and_gathers_frozen_weights_and_zero_1_does_not() -> None:
    frozen = 4 * (NF4 * LINEAR + 2 * NORMS)
    shape = (4, False, False)
    assert payloads.parameter_bytes(QLORA, config(dp=4, zero_stage=1), *shape) == (("dp", 2 * 4 * TRAINED),)
    assert payloads.parameter_bytes(QLORA, config(dp=4, zero_stage=3), *shape) == (("dp", pytest.approx(8 * TRAINED + frozen)),)
    one, three = (memory.rank_bytes(QLORA, config(dp=4, zero_stage=stage), 4, 0, False, False) for stage in (1, 3))
    gathered = 4 * TRAINED + 3 * (2 * TRAINED + frozen / 4)  # one gradient, and three layers
    state = 4 * TRAINED * (2 + 4) * 3 / 4  # weights and gradients of ZeRO 1 less their quarters
    assert one - three == pytest.approx(frozen * 3 / 4 + state - gathered)


def test_gradients_and_tied_embedding() -> None:
    dp = config(dp=2)
    assert payloads.gradient_bytes(LORA, dp, 4, True, True) == (("dp", 4 * 4 * TRAINED),)
    assert payloads.tied_bytes(WHOLE, config(pp=2)) == 4 * 256 * 64
    assert payloads.tied_bytes(LORA, config(pp=2)) == 0


def test_backward_has_no_gradients_of_frozen_weights() -> None:
    """On an ideal device, of one layer: B of full training is B of frozen products; W is that of adapters alone."""
    fast = builders.device(memory_bandwidth=1e30)
    forward, inputs, weights = compute.layer_parts(fast, WHOLE, config())
    own = compute.layer_parts(fast, LORA, config())
    adapters = 2 * 16 * TRAINED / 1e14
    passes = compute.pass_seconds(0.0, fast)
    assert own[0] - forward == pytest.approx(adapters + 7 * passes)
    assert own[1] - inputs == pytest.approx(adapters + 7 * passes)
    assert own[2] == pytest.approx(adapters + passes)
    assert weights == pytest.approx(2 * 16 * LINEAR / 1e14 + passes)


def test_four_bit_weights_cost_a_pass_in_each_direction() -> None:
    device = builders.device()
    plain, packed = (compute.layer_parts(device, one, config()) for one in (LORA, QLORA))
    passes = sum(compute.pass_seconds(size * (NF4 + 2), device) for size in (3 * 64 * 64, 64 * 64, 2 * 64 * 96, 64 * 96))
    assert packed[0] - plain[0] == pytest.approx(passes)
    assert packed[1] - plain[1] == pytest.approx(passes)
    assert packed[2] == plain[2]


def test_embedding_and_head_are_frozen() -> None:
    device = builders.device()
    assert compute.embedding_seconds(device, LORA, config())[1] == 0
    forward, inputs, weights = compute.head_parts(device, WHOLE, config())
    assert compute.head_parts(device, LORA, config())[:2] == (forward, inputs)
    assert compute.head_parts(device, LORA, config())[2] < weights
    assert memory.logits_bytes(WHOLE, config()) - memory.logits_bytes(LORA, config()) == 2 * 16 * 64


def test_launches_of_adapters_take_time() -> None:
    slow = builders.device(launch=1.0)
    assert compute.layer_seconds(slow, WHOLE, config()) == (1.0, 1.3)
    assert compute.layer_seconds(slow, LORA, config()) == pytest.approx((1 + 28 / 30, 1.3 * (1 + 28 / 30)))
    assert compute.layer_seconds(slow, QLORA, config()) == pytest.approx((1 + 40 / 30, 1.3 * (1 + 40 / 30)))
