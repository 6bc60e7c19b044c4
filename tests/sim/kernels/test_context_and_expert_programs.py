"""Programs and payloads of context and expert parallelism: ring exchanges, all_to_alls, gathers and reductions."""

from __future__ import annotations

from dataclasses import replace

from sim.collectives import Transfer, rounds
from sim.kernels import lowering, payloads
from sim.plan.program import text
from tests.sim.context_and_experts import EXPERTS, nodes


def test_a_program_has_ring_exchanges_and_all_to_alls() -> None:
    quiet = {"overlap_grad_reduce": False, "overlap_param_gather": False, "zero_stage": 0}
    plan = nodes(cp=2, dp=2, ep=2, shape=EXPERTS, **quiet)
    program = "F0 ring F0 ep all_to_all B0 ring B0 ep all_to_all dp all_reduce edp all_reduce optimizer"
    assert text(lowering.program(plan, 0, 1)) == program
    again = nodes(cp=2, recompute="full", **quiet)
    assert text(lowering.program(again, 0, 1)) == "F0 ring F0 B0 ring R0 ring B0 dp all_reduce optimizer"


def test_zero_3_gathers_and_reduces_experts_in_their_own_group() -> None:
    plan = nodes(dp=4, ep=2, layers=(1,), shape=EXPERTS, zero_stage=3)
    gathers = "start dp all_gather.0 start edp all_gather.0 wait dp all_gather.0 wait edp all_gather.0"
    reduces = "start dp reduce_scatter.0 start edp reduce_scatter.0"
    assert text(lowering.program(plan, 0, 1)) == (
        f"{gathers} F0 ep all_to_all {gathers} B0 ep all_to_all {reduces} "
        "wait dp reduce_scatter.0 wait edp reduce_scatter.0 optimizer"
    )


def test_zero_3_shards_weights_over_context_parallel_ranks() -> None:
    """One replica on two cp ranks: weights are gathered and gradients reduced as over two replicas."""
    plan = nodes(cp=2, layers=(1,), zero_stage=3)
    assert plan.config.shards_parameters and plan.config.reduces_each_microbatch
    assert text(lowering.program(plan, 0, 1)) == (
        "start dp all_gather.0 wait dp all_gather.0 F0 ring F0 start dp all_gather.0 wait dp all_gather.0 B0 ring B0 "
        "start dp reduce_scatter.0 wait dp reduce_scatter.0 optimizer"
    )


def test_split_weight_gradients_need_no_ring_exchange_and_no_all_to_all() -> None:
    plan = nodes(cp=2, dp=2, ep=2, shape=EXPERTS, schedule="zb-h1", zero_stage=0, overlap_grad_reduce=False)
    assert text(lowering.program(plan, 0, 1)) == (
        "F0 ring F0 ep all_to_all B0 ring B0 ep all_to_all W0 dp all_reduce edp all_reduce optimizer"
    )


def test_without_sequence_parallelism_experts_receive_all_tokens_of_a_context_parallel_rank() -> None:
    """b 1, s 64, h 96, 2 bytes on cp 2, tp 2: without sequence parallelism both tensor-parallel ranks hold all tokens."""
    plan = nodes(tp=2, cp=2, pp=2, dp=2, ep=2, shape=EXPERTS)
    workload, config = plan.workload, plan.config
    assert payloads.message_bytes(workload, config) == 64 / 2 * 96 * 2 / 2
    assert payloads.gathered_bytes(workload, config) == 64 / 2 * 96 * 2
    assert payloads.expert_collectives(workload, config, 1, False) == (("ep", "all_to_all", 2 * 64 / 2 * 96 * 2, 2.0),)


def test_payloads_of_ring_exchanges_and_all_to_alls() -> None:
    """b 1, s 64, h 96, 24 heads of 4, 2 bytes: K and V of the whole sequence go around the ring once per layer; two
    all_to_alls of two copies of the rank's tokens."""
    plan = nodes(tp=2, cp=2, dp=2, ep=2, layers=(3,), shape=EXPERTS, sequence_parallel=True)
    workload, config = plan.workload, plan.config
    keys_and_values, tokens = 2 * 64 * (96 / 2) * 2, 64 / 2 / 2 * 2 * 96 * 2
    assert payloads.ring_exchanges(workload, config, 3, False) == (("F", keys_and_values, 3.0),)
    assert payloads.ring_exchanges(workload, config, 3, True) == (("B", 2 * keys_and_values, 3.0),)
    assert payloads.expert_collectives(workload, config, 3, False) == (("ep", "all_to_all", tokens, 6.0),)
    full = replace(config, recompute="full")
    assert payloads.ring_exchanges(workload, full, 3, True) == (("R", keys_and_values, 3.0), ("B", 2 * keys_and_values, 3.0))
    assert payloads.expert_collectives(workload, full, 3, True) == (("ep", "all_to_all", tokens, 12.0),)


def test_ulysses_exchanges_heads_in_place_of_a_ring() -> None:
    """24 heads of 4 on tp 2, cp 2: a rank's half of the tokens has 48 queries, 48 keys, 48 values and 48 results. With two key
    and value heads in all, each of two cp ranks gets a copy of the one of its tensor-parallel rank: 8 keys and 8 values."""
    plan = nodes(tp=2, cp=2, layers=(3,), cp_algo="ulysses")
    workload, config = plan.workload, plan.config
    assert payloads.ring_exchanges(workload, config, 3, False) == ()
    assert payloads.layer_collectives(workload, config, 3, False) == (("cp", "all_to_all", 32 * 4 * 48 * 2 / 2, 6.0),)
    again = replace(config, recompute="full")
    assert payloads.layer_collectives(workload, again, 3, True) == (("cp", "all_to_all", 32 * 4 * 48 * 2 / 2, 12.0),)
    grouped = nodes(tp=2, cp=2, layers=(3,), cp_algo="ulysses", shape={"kv_heads": 2})
    found = payloads.layer_collectives(grouped.workload, grouped.config, 3, False)
    assert found == (("cp", "all_to_all", 32 * (2 * 48 + 2 * 8) * 2 / 2, 6.0),)


def test_hybrid_context_parallelism_exchanges_heads_on_a_node_and_keys_between_nodes() -> None:
    """24 heads of 4 on cp 8, in two nodes of four: a rank's eighth of the tokens has 96 queries, keys, values and results; keys
    and values of a quarter of the heads travel around rings of two, with one head at least."""
    facts = {"cp": 8, "layers": (3,), "cp_algo": "hybrid", "domain": 4}
    plan, grouped = nodes(**facts), nodes(shape={"kv_heads": 2}, **facts)
    workload, config = plan.workload, plan.config
    assert payloads.layer_collectives(workload, config, 3, False) == (("cp", "all_to_all", 8 * 4 * 96 * 2 / 2, 6.0),)
    assert payloads.ring_exchanges(workload, config, 3, False) == (("F", 64 * 2 * 24 * 2, 3.0),)
    assert payloads.ring_exchanges(workload, config, 3, True) == (("B", 2 * 64 * 2 * 24 * 2, 3.0),)
    found = payloads.layer_collectives(grouped.workload, grouped.config, 3, False)
    assert found == (("cp", "all_to_all", 8 * (2 * 96 + 4 * 8) * 2 / 2, 6.0),)
    assert payloads.ring_exchanges(grouped.workload, grouped.config, 3, False) == (("F", 64 * 8 * 2, 3.0),)


def test_tensor_parallel_experts_gather_the_tokens_dispatched_to_them() -> None:
    """Two copies of every token for the experts; attention, and experts that all tokens share, gather each token once."""
    plan = nodes(tp=2, layers=(3,), shape=EXPERTS, sequence_parallel=True)
    shared = nodes(tp=2, layers=(3,), shape=EXPERTS | {"shared_ffn_hidden": 96}, sequence_parallel=True)
    once, twice = 64 * 96 * 2.0, 2 * 64 * 96 * 2.0
    routed = (("all_gather", twice, 3.0), ("reduce_scatter", twice, 3.0))
    for given, count in ((plan, 3.0), (shared, 6.0)):
        found = payloads.tensor_collectives(given.workload, given.config, 3, False, False, False)
        assert found == (("all_gather", once, count), ("reduce_scatter", once, count), *routed)


def test_an_all_to_all_of_three_ranks_is_one_round() -> None:
    (only,) = rounds("all_to_all", "all_to_all", ((0, 1), (2,)))
    pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert only.transfers == tuple(Transfer(a, b, 1 / 3, float((a, b) == (0, 2))) for a, b in pairs)
    assert rounds("ring", "all_to_all", ((0, 1), (2,))) == (only,), "a ring has no all_to_all of its own"
