"""Bytes on a rank: 18 a parameter, shared by ZeRO, and the published activations for as many microbatches as are in flight."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from sim.hardware.cluster import Trunk
from sim.hardware.memory_facts import WORKSPACE
from sim.kernels import communicators, memory
from sim.kernels.memory import layer_activation_bytes, state_bytes
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.kernels import LayerSharding, layer_kernels
from sim.workload.model import Model
from sim.workload.workload import Workload
from tests import builders
from tests.builders import cluster, device, fleet

MILLION = 1_000_000
GPT = Model("gpt", layers=8, hidden=1024, heads=16, kv_heads=16, ffn_hidden=4096, vocab=51200)
B, S, H, A = 2, 512, 1024, 16
SBH = S * B * H


def workload(precision: str = "bf16") -> Workload:
    return Workload(GPT, 64, S, precision)


def config(**switches: Any) -> ParallelConfig:
    dp = switches.get("dp", 1)
    return ParallelConfig(**({"microbatch_size": B, "num_microbatches": (1,) * dp} | switches))


@pytest.mark.parametrize(
    ("precision", "switches", "bytes_a_parameter"),
    [
        ("bf16", {}, 2 + 4 + 12),
        ("bf16", {"gradient_precision": "bf16"}, 2 + 2 + 12),
        ("fp16", {"gradient_precision": "fp16"}, 16),
        ("fp32", {}, 4 + 4 + 8),
        ("bf16", {"dp": 4}, 2 + 4 + 12 / 4),
        ("bf16", {"dp": 4, "zero_stage": 0}, 18),
        ("bf16", {"dp": 4, "zero_stage": 2}, 2 + (4 + 12) / 4),
        ("bf16", {"dp": 4, "zero_stage": 3}, (2 + 4 + 12) / 4),
        ("fp16", {"dp": 8, "gradient_precision": "fp16"}, 2 + 2 + 12 / 8),
    ],
)
def test_a_parameter_takes_its_weight_gradient_and_optimizer_state(
    precision: str, switches: dict[str, Any], bytes_a_parameter: float
) -> None:
    """Rajbhandari et al., arXiv 1910.02054, sections 3.1 and 5: ZeRO 1, 2, 3 share state, gradients, weights."""
    assert state_bytes(MILLION, workload(precision), config(**switches)) == pytest.approx(
        MILLION * bytes_a_parameter, rel=1e-12
    )


@pytest.mark.parametrize(
    ("switches", "kept"),
    [
        # arXiv 2205.05198, table 2, with a fused attention core (no scores kept)
        ({}, 34.0),
        ({"tp": 2}, 10 + 24 / 2),
        ({"tp": 8}, 10 + 24 / 8),
        ({"tp": 8, "sequence_parallel": True}, 34 / 8),
        # the same with scores: 5 a s / h more
        ({"attention": "unfused"}, 34 + 5 * A * S / H),
        ({"attention": "unfused", "tp": 4}, 10 + 24 / 4 + 5 * A * S / (H * 4)),
        ({"attention": "unfused", "tp": 4, "sequence_parallel": True}, 34 / 4 + 5 * A * S / (H * 4)),
        ({"attention": "unfused", "tp": 4, "sequence_parallel": True, "recompute": "selective"}, 34 / 4),
        # full recomputation keeps the layer's input
        ({"recompute": "full"}, 2.0),
        ({"recompute": "full", "tp": 8}, 2.0),
        ({"recompute": "full", "tp": 8, "sequence_parallel": True}, 2 / 8),
    ],
)
def test_a_layer_keeps_the_published_activations(switches: dict[str, Any], kept: float) -> None:
    assert layer_activation_bytes(workload(), config(**switches))[0] == pytest.approx(SBH * kept, rel=1e-12)


@pytest.mark.parametrize(("tp", "values"), [(1, 67_108_864), (2, 33_554_432), (4, 16_777_216), (8, 8_388_608)])
def test_in_fp32_the_softmax_alone_is_kept(tp: int, values: int) -> None:
    """Of a layer of OPT-350M at 2048 tokens, 16/tp heads x 2048^2 scores. What is left of `act_mem_floats` (90181632, 48238592,
    27267072, 16781312 at tp 1, 2, 4, 8; eth-easl/sailor, llm_info.json) is 3 + 8/tp inputs of 2048 x 1024 values."""
    opt = Workload(Model("opt-350m", 24, 1024, 16, 16, 4096, 50272), 8, 2048, "tf32")
    switches = {"tp": tp, "microbatch_size": 1}
    unfused, _ = layer_activation_bytes(opt, config(attention="unfused", **switches))
    fused, _ = layer_activation_bytes(opt, config(**switches))
    assert unfused - fused == 4 * values


def test_full_recomputation_has_one_layer_at_work() -> None:
    assert layer_activation_bytes(workload(), config(recompute="full"))[1] == SBH * 34
    assert layer_activation_bytes(workload(), config())[1] == 0


def test_selective_recomputation_has_the_scores_of_one_layer_at_work() -> None:
    assert layer_activation_bytes(workload(), config(recompute="selective", attention="unfused"))[1] == SBH * 5 * A * S / H
    assert layer_activation_bytes(workload(), config(recompute="selective"))[1] == 0


def test_end_stages_hold_embedding_and_head() -> None:
    model = builders.model(layers=6)
    of = Workload(model, 8, 64)
    middle, first, last = (
        memory.stage_parameters(of, config(), 2, *ends) for ends in ((False, False), (True, False), (False, True))
    )
    assert middle == 2 * model.layer_parameters
    assert first - middle == model.embedding_parameters
    assert last - middle == model.head_parameters
    assert middle + first + last == model.parameters


def test_a_tied_embedding_is_stored_on_both_end_stages_but_once_on_one_stage() -> None:
    of = workload()
    both = memory.stage_parameters(of, config(), 4, True, False) + memory.stage_parameters(of, config(), 4, False, True)
    assert both - memory.stage_parameters(of, config(), 8, True, True) == GPT.vocab * GPT.hidden


def test_tensor_parallel_ranks_share_the_parameters() -> None:
    assert memory.stage_parameters(workload(), config(tp=4), 8, True, True) == GPT.parameters / 4


def plan_of_four(**switches: Any) -> Any:
    machines = fleet(cluster(nodes=4))
    switches = {"microbatches": 8, "layers": (2,) * (4 * switches.get("vpp", 1))} | switches
    return builders.plan(machines, pp=4, seq_len=256, **switches)


def microbatch(plan: Any) -> float:
    """Bytes that a stage of two layers keeps for one microbatch: 34 s b h a layer."""
    return 2 * 34.0 * 256 * plan.workload.model.hidden


def test_each_pipeline_rank_of_1f1b_holds_one_microbatch_less_than_the_one_before() -> None:
    """Pipeline ranks 1 and 2 have the same layers and no ends: three and two microbatches in flight."""
    plan = plan_of_four()
    peaks = memory.peak_memory(plan)
    assert peaks[1] - peaks[2] == pytest.approx(microbatch(plan), rel=1e-9)


def test_the_first_pipeline_rank_of_1f1b_holds_as_many_microbatches_as_there_are_pipeline_ranks() -> None:
    plan = plan_of_four()
    model, s = plan.workload.model, 256
    parameters = 2 * model.layer_parameters + model.embedding_parameters
    dropout_mask, messages = s * model.hidden, 4 * 2 * s * model.hidden
    expected = 18 * parameters + 4 * (microbatch(plan) + dropout_mask) + messages + WORKSPACE
    assert memory.torch_bytes(plan)[0] == pytest.approx(expected, rel=1e-12)
    assert memory.peak_memory(plan)[0] == pytest.approx(expected + communicators.outside_torch(plan.config), rel=1e-12)


def test_gpipe_holds_all_microbatches_at_every_pipeline_rank() -> None:
    peaks = memory.peak_memory(plan_of_four(schedule="gpipe"))
    fewer = plan_of_four()
    assert peaks[1] == peaks[2]
    assert peaks[1] - memory.peak_memory(fewer)[1] == pytest.approx((8 - 3) * microbatch(fewer), rel=1e-9)


def logits(plan: Plan) -> float:
    """arXiv 2205.05198, section 4.3: 4 s b h for norm and projection, 4 s b v for the logits in fp32."""
    model, tokens = plan.workload.model, 256
    return 4.0 * tokens * model.hidden + 4.0 * tokens * model.vocab


def test_gpipe_keeps_the_logits_of_all_microbatches() -> None:
    """The last pipeline rank has 8 microbatches in flight, under 1F1B one."""
    plan, fewer = plan_of_four(schedule="gpipe"), plan_of_four()
    more = memory.peak_memory(plan)[3] - memory.peak_memory(fewer)[3]
    assert more == pytest.approx(7 * (microbatch(fewer) + logits(plan)), rel=1e-9)


def test_interleaving_of_pp_microbatches_keeps_all_their_logits() -> None:
    """With as many microbatches as pipeline ranks, Megatron-LM runs all forwards first; with more it keeps one's logits."""
    few, many = (memory.peak_memory(plan_of_four(schedule="interleaved", vpp=2, microbatches=m))[3] for m in (4, 8))
    plan = plan_of_four(schedule="interleaved", vpp=2)
    chunks = 8 - 5  # of two layers: 4 x 2, and 4 of the first chunk and 1 of the second
    assert few - many == pytest.approx(chunks * microbatch(plan) + 3 * logits(plan), rel=1e-9)


CHUNKS = {name: (1, 2, 3) if schedules.get(name).CHUNKED else (1,) for name in filter(schedules.is_planned, schedules.names())}


@pytest.mark.parametrize(("name", "vpp"), [(name, vpp) for name, several in CHUNKS.items() for vpp in several])
def test_heads_in_flight_are_those_of_the_program(name: str, vpp: int) -> None:
    for pp, m in itertools.product(range(1, 6), range(1, 13)):
        if not schedules.is_defined(name, pp, m, vpp):
            continue
        waiting, most = 0, 0
        for action in schedules.actions(name, pp - 1, pp, m, vpp):
            waiting += {"F": 1, "B": -1}.get(action.kind, 0) if action.stage == pp * vpp - 1 else 0
            most = max(most, waiting)
        pairs = schedules.in_flight(name, pp - 1, pp, m, vpp)
        one = ParallelConfig(pp=pp, vpp=vpp, schedule=name, num_microbatches=(m,))
        assert max(memory.heads_in_flight(one, held) for held, _ in pairs) == most, (pp, m)


def test_interleaving_holds_its_warm_up_in_chunks() -> None:
    """Pipeline ranks 1 and 2 hold 9 and 7 chunks of two layers (`peak_in_flight`)."""
    plan = plan_of_four(schedule="interleaved", vpp=2)
    peaks = memory.peak_memory(plan)
    assert peaks[1] - peaks[2] == pytest.approx((9 - 7) * microbatch(plan), rel=1e-9)


@pytest.mark.parametrize("switches", [{}, {"recompute": "full"}])
def test_products_keep_32_s_b_h_from_b_to_w(switches: dict[str, Any]) -> None:
    """arXiv 2401.10241, table 1: inputs of the four products 14 s b h, gradients of their outputs 18 s b h."""
    kernels = layer_kernels(GPT, B, S, LayerSharding(), 2)
    assert memory.deferred_bytes(kernels, 2) == 32 * SBH
    one, two = (memory.rank_bytes(workload(), config(**switches), 3, 4, False, False, deferred) for deferred in (1, 2))
    assert two - one == 3 * 32 * SBH


def test_the_head_waits_for_w_with_the_gradient_of_its_logits() -> None:
    one, two = (memory.rank_bytes(workload(), config(), 3, 1, False, True, deferred) for deferred in (1, 2))
    assert two - one == 3 * 32 * SBH + 2 * SBH + 2 * S * B * GPT.vocab


def test_zb_h1_holds_no_more_than_the_first_pipeline_rank_of_1f1b_but_for_the_head() -> None:
    """Rank i of p holds p - i microbatches for B and i for W (arXiv 2401.10241, 2.3); 34 and 32 s b h a layer."""
    peaks = memory.peak_memory(plan_of_four(schedule="zb-h1"))
    of_1f1b = plan_of_four()
    assert peaks[0] == memory.peak_memory(of_1f1b)[0]
    assert peaks[1] - memory.peak_memory(of_1f1b)[1] == pytest.approx(32 / 34 * microbatch(of_1f1b), rel=1e-9)
    assert peaks[2] - memory.peak_memory(of_1f1b)[2] == pytest.approx(2 * 32 / 34 * microbatch(of_1f1b), rel=1e-9)


def test_zb_h2_holds_seven_microbatches_where_1f1b_holds_four() -> None:
    """Pipeline ranks 1 and 2 of four: 5 and 3 for B, 2 and 4 for W (arXiv 2401.10241, section 2.3)."""
    peaks = memory.peak_memory(plan_of_four(schedule="zb-h2"))
    of_1f1b = plan_of_four()
    more = [(a - b) / microbatch(of_1f1b) for a, b in zip(peaks, memory.peak_memory(of_1f1b), strict=True)]
    assert more[1:3] == pytest.approx([5 + 2 * 32 / 34 - 3, 3 + 4 * 32 / 34 - 2], rel=1e-9)


def test_the_fullest_replica_counts() -> None:
    machines = fleet(cluster(nodes=8))
    few = memory.peak_memory(builders.plan(machines, pp=4, dp=2, microbatches=(1, 1)))
    one_more = memory.peak_memory(builders.plan(machines, pp=4, dp=2, microbatches=(1, 8)))
    most = memory.peak_memory(builders.plan(machines, pp=4, dp=2, microbatches=(8, 8)))
    assert few[0] < one_more[0] == most[0]


def test_the_smallest_device_of_a_pipeline_rank_is_its_limit() -> None:
    big, small = cluster("big", 3), cluster("small", 1, spec=device("small", memory=16 * 2**30))
    machines = fleet(big, small, trunks=(Trunk(("big", "small"), "infiniband", 1e10, 0.0),))
    assert memory.limits(builders.plan(machines, pp=2, dp=2)) == (80e9, 16 * 2**30)


def test_the_head_takes_its_memory_along_and_leaves_nothing() -> None:
    """The head alone on the second of three stages, 64 tokens, hidden 96, vocabulary 768: 18 bytes for each of 768 x 96 + 2 x
    96 parameters; for two microbatches in flight the inputs of norm and logits and the logits in fp32; once the logits in
    bf16; four messages. The stage after it has the workspace of 1 GiB alone."""
    plan = builders.plan(fleet(cluster(devices=3)), pp=3, microbatches=4, layers=(2, 0, 0), head=1)
    head = 18 * 73_920 + 2 * (2 * 12_288 + 196_608) + 98_304 + 4 * 12_288
    assert memory.torch_bytes(plan)[1:] == (2**30 + head, 2**30)


def test_a_stage_without_layers_recomputes_none() -> None:
    layers, alone = (2, 2), (4, 0)
    plans = [builders.plan(fleet(cluster(devices=2)), pp=2, layers=each, recompute="full") for each in (layers, alone)]
    full, none = (memory.torch_bytes(plan)[1] for plan in plans)
    of = plans[0].workload, plans[0].config
    kept, recomputed = layer_activation_bytes(*of)
    assert full - none == pytest.approx(18 * 2 * 111_840 + 2 * kept + recomputed, rel=1e-12)


@pytest.mark.parametrize(
    ("recomputed", "kept", "working"),
    [(0, 4 * 34, 0), (1, 2 + 3 * 34, 34), (3, 3 * 2 + 34, 34), (4, 4 * 2, 34), (9, 4 * 2, 34)],
)
@pytest.mark.parametrize("in_flight", [1, 3])
def test_recomputed_layers_keep_their_input_alone(recomputed: int, kept: int, working: int, in_flight: int) -> None:
    """Of four layers of 34 s b h: arXiv 2205.05198, table 2, with a fused attention core and full recomputation."""
    none = memory.rank_bytes(workload(), config(), 4, in_flight, False, False)
    some = memory.rank_bytes(workload(), config(recompute="full", recompute_layers=(recomputed,)), 4, in_flight, False, False)
    assert some - none == pytest.approx(SBH * (in_flight * (kept - 4 * 34) + working), abs=1.0)
