"""Plan -> programs: literal programs, and the laws that hold between the programs of neighbours."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.kernels import lowering, memory, payloads
from sim.plan.plan import Plan
from sim.plan.program import Action, text
from tests import builders
from tests.builders import any_plan, cluster, fleet


def program(plan: Plan, pp_rank: int, replica: int = 0) -> str:
    return text(lowering.program(plan, pp_rank, plan.config.num_microbatches[replica]), plan.config.vpp)


def pair(**facts: object) -> Plan:
    return builders.plan(fleet(cluster(nodes=8, devices=2)), **facts)


def test_a_rank_alone_computes_and_steps() -> None:
    assert program(pair(microbatches=2), 0) == "F0 B0 F1 B1 optimizer"


def test_neighbours_of_a_pipeline_hand_on_activations_and_hand_back_gradients() -> None:
    plan = pair(pp=2, microbatches=2)
    assert program(plan, 0) == "F0 send F0 F1 send F1 recv B0 B0 recv B1 B1 optimizer"
    assert program(plan, 1) == "recv F0 F0 B0 send B0 recv F1 F1 B1 send B1 optimizer"


def test_gradients_reduce_behind_the_last_backward_and_weights_gather_ahead_of_the_first_forward() -> None:
    plan = pair(dp=2, microbatches=2, layers=(2,), shape={"hidden": 2400})  # two layers of 69 million parameters: two buckets
    assert program(plan, 0) == (
        "start dp all_gather.0 start dp all_gather.1 wait dp all_gather.0 F0.0 wait dp all_gather.1 F0.1 B0 F1 "
        "B1.0 start dp reduce_scatter.0 B1.1 start dp reduce_scatter.1 "
        "wait dp reduce_scatter.0 wait dp reduce_scatter.1 optimizer"
    )


def test_only_b_hands_gradients_back_and_takes_tensor_collectives() -> None:
    plan = pair(pp=2, tp=2, microbatches=2, schedule="zb-h1")
    assert program(plan, 1) == (
        "recv F0 tp all_gather F0 tp all_reduce B0 tp all_reduce send B0 "
        "recv F1 tp all_gather F1 tp all_reduce B1 tp all_reduce send B1 W0 W1 optimizer"
    )


def test_gradients_reduce_behind_the_last_weight_gradient_where_the_backward_is_split() -> None:
    facts = {"dp": 2, "microbatches": 2, "layers": (2,), "shape": {"hidden": 2400}, "overlap_param_gather": False}
    assert program(pair(**facts, schedule="zb-h2"), 0) == (
        "F0 B0 W0 F1 B1 W1.0 start dp reduce_scatter.0 W1.1 start dp reduce_scatter.1 "
        "wait dp reduce_scatter.0 wait dp reduce_scatter.1 optimizer dp all_gather"
    )


def test_without_overlap_gradients_reduce_before_the_optimizer_and_weights_gather_after_it() -> None:
    plan = pair(dp=2, overlap_grad_reduce=False, overlap_param_gather=False)
    assert program(plan, 0) == "F0 B0 dp reduce_scatter optimizer dp all_gather"


def test_without_sharded_state_gradients_are_all_reduced() -> None:
    assert program(pair(dp=2, zero_stage=0, overlap_grad_reduce=False), 0) == "F0 B0 dp all_reduce optimizer"


def test_zero_2_reduces_the_gradients_of_every_microbatch() -> None:
    plan = pair(dp=2, microbatches=2, zero_stage=2, overlap_param_gather=False)
    assert program(plan, 0) == (
        "F0 B0 start dp reduce_scatter.0 F1 B1 start dp reduce_scatter.0 wait dp reduce_scatter.0 optimizer dp all_gather"
    )


def test_zero_2_without_overlap_waits_for_the_gradients_of_every_microbatch() -> None:
    """GroupShardedStage2 of Paddle, and DeepSpeed without `overlap_comm`: nothing is left to reduce as the step ends."""
    facts = {"dp": 2, "microbatches": 2, "zero_stage": 2, "overlap_grad_reduce": False, "overlap_param_gather": False}
    whole = "F0 B0 dp reduce_scatter F1 B1 dp reduce_scatter optimizer dp all_gather"
    assert program(pair(**facts), 0) == whole
    assert program(pair(**facts, schedule="zb-h2"), 0) == (
        "F0 B0 W0 dp reduce_scatter F1 B1 W1 dp reduce_scatter optimizer dp all_gather"
    )


def test_zero_3_gathers_two_layers_ahead_of_each_forward_and_backward() -> None:
    """Three layers: the weights of the next two are gathered while one computes (FSDP's backward prefetch)."""
    plan = pair(dp=2, layers=(3,), zero_stage=3)
    assert program(plan, 0) == (
        "start dp all_gather.0 start dp all_gather.1 "
        "wait dp all_gather.0 start dp all_gather.2 F0.0 wait dp all_gather.1 F0.1 wait dp all_gather.2 F0.2 "
        "start dp all_gather.0 start dp all_gather.1 "
        "wait dp all_gather.0 start dp all_gather.2 B0.0 start dp reduce_scatter.0 "
        "wait dp all_gather.1 B0.1 start dp reduce_scatter.1 wait dp all_gather.2 B0.2 start dp reduce_scatter.2 "
        "wait dp reduce_scatter.0 wait dp reduce_scatter.1 wait dp reduce_scatter.2 optimizer"
    )


def test_zero_3_without_overlap_waits_for_each_gather_and_reduction() -> None:
    """DeepSpeed without `overlap_comm`: every layer waits for its weights, and for its gradients."""
    plan = pair(dp=2, layers=(2,), zero_stage=3, overlap_grad_reduce=False)
    assert program(plan, 0) == (
        "dp all_gather F0.0 dp all_gather F0.1 dp all_gather B0.0 dp reduce_scatter dp all_gather B0.1 dp reduce_scatter "
        "optimizer"
    )


def test_a_tied_embedding_is_summed_by_the_end_stages_only() -> None:
    plan = pair(pp=3, shape={"tied_embeddings": True})
    tied = [" embedding all_reduce " in program(plan, pp_rank) for pp_rank in range(3)]
    assert tied == [True, False, True]


@pytest.mark.parametrize(
    ("facts", "share"), [({}, 1), ({"tied_shards": True}, 4), ({"tied_shards": True, "zero_shard_size": 2}, 2)]
)
def test_end_stages_sum_the_whole_gradient_of_a_tied_embedding_or_a_shard(facts, share) -> None:
    """A table of 768 x 96 values of 4 bytes over two tensor-parallel ranks; four replicas."""
    plan = pair(tp=2, pp=2, dp=4, shape={"tied_embeddings": True}, **facts)
    (nbytes,) = [action.nbytes for action in lowering.program(plan, 0, 1) if action.group == "embedding"]
    assert nbytes == 768 * 96 * 4 / 2 / share


def test_a_stage_after_the_head_computes_nothing_and_has_no_messages() -> None:
    plan = pair(pp=3, microbatches=2, layers=(2, 2, 0), head=1, dp=2, shape={"tied_embeddings": True})
    assert program(plan, 1) == (
        "wait dp all_gather.0 recv F0 wait dp all_gather.0 F0 recv F1 F1 B0 send B0 B1 start dp reduce_scatter.0 send B1 "
        "wait dp reduce_scatter.0 embedding all_reduce optimizer"
    ).replace("wait dp all_gather.0 recv", "start dp all_gather.0 recv", 1)
    assert program(plan, 2) == "F0 B0 F1 B1 optimizer"


def test_virtual_stages_of_a_pipeline_rank_are_numbered() -> None:
    plan = pair(pp=2, vpp=2, microbatches=2, schedule="interleaved")
    assert program(plan, 0).split(" recv ")[0] == "0F0 send F0 0F1 send F1"


def test_a_layer_takes_two_collectives_each_direction_and_the_ends_one_more() -> None:
    plan = pair(tp=2, layers=(3,))
    workload, config = plan.workload, plan.config
    assert payloads.tensor_collectives(workload, config, 3, True, True, False) == (("all_reduce", 64 * 96 * 2.0, 7.0),)
    assert payloads.tensor_collectives(workload, config, 3, False, False, True) == (("all_reduce", 64 * 96 * 2.0, 6.0),)


def test_of_overlapped_tensor_parallelism_the_last_part_of_scatters_counts_and_what_others_take() -> None:
    """Three layers: 6 scatters, of each a quarter and 0.15 of the rest, and the whole gather of the head's input; in a backward
    0.15 of 6 gathers and 6 scatters, and with recomputation 6 scatters as in a forward."""
    plan = pair(tp=4, layers=(3,), sequence_parallel=True)
    config, payload = replace(plan.config, tp_overlap=True), 64 * 96 * 2.0
    found = payloads.tensor_collectives(plan.workload, config, 3, False, True, False)
    scatters = 6 * (0.25 + 0.75 * 0.15)
    assert found == (("all_gather", payload, 1.0), ("reduce_scatter", payload, pytest.approx(scatters)))
    found = payloads.tensor_collectives(plan.workload, config, 3, False, False, True)
    assert found == (("all_gather", payload, pytest.approx(0.9)), ("reduce_scatter", payload, pytest.approx(0.9)))
    full = replace(config, recompute="full")
    found = payloads.tensor_collectives(plan.workload, full, 3, False, False, True)
    assert found == (("all_gather", payload, pytest.approx(0.9)), ("reduce_scatter", payload, pytest.approx(0.9 + scatters)))
    summed = replace(config, sequence_parallel=False)
    assert payloads.tensor_collectives(plan.workload, summed, 3, False, False, False) == (("all_reduce", payload, 6.0),)


def test_full_recomputation_repeats_the_collectives_of_the_forward() -> None:
    plan = pair(tp=2, recompute="full")
    ((_, _, count),) = payloads.tensor_collectives(plan.workload, plan.config, 3, False, False, True)
    assert count == 12.0


def test_recomputation_that_stops_early_leaves_out_the_last_reduction_of_a_layer() -> None:
    plan = pair(tp=2, recompute="full")
    early = replace(plan.config, early_stop=True)
    payload = 64 * 96 * 2.0
    assert payloads.tensor_collectives(plan.workload, early, 3, False, False, True) == (("all_reduce", payload, 9.0),)
    sliced = replace(early, sequence_parallel=True)
    found = payloads.tensor_collectives(plan.workload, sliced, 3, False, False, True)
    assert found == (("all_gather", payload, 12.0), ("reduce_scatter", payload, 9.0))
    assert payloads.tensor_collectives(plan.workload, early, 3, False, False, False) == (("all_reduce", payload, 6.0),)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_tensor_parallel_ranks_send_their_slice(sequence_parallel: bool) -> None:
    plan = pair(tp=2, pp=2, sequence_parallel=sequence_parallel)
    assert payloads.message_bytes(plan.workload, plan.config) == 64 * 96


def test_slices_are_gathered_before_they_are_used_where_the_sequence_is_whole() -> None:
    plan, slices, alone = pair(tp=2, pp=2), pair(tp=2, pp=2, sequence_parallel=True), pair(pp=2)
    assert payloads.gathered_bytes(plan.workload, plan.config) == 64 * 96 * 2
    assert program(plan, 1) == "recv F0 tp all_gather F0 tp all_reduce B0 tp all_reduce send B0 optimizer"
    assert program(plan, 0) == "F0 tp all_reduce send F0 recv B0 tp all_gather B0 tp all_reduce optimizer"
    assert payloads.gathered_bytes(slices.workload, slices.config) == 0.0
    assert payloads.gathered_bytes(alone.workload, alone.config) == 0.0


def test_whole_messages_are_sent_by_each_tensor_parallel_rank_and_not_gathered() -> None:
    """64 tokens x 96 values x 2 bytes from each of two ranks; with sequence parallelism a rank has half of them."""
    plan, slices = pair(tp=2, pp=2), pair(tp=2, pp=2, sequence_parallel=True)
    whole, half = (replace(one.config, whole_messages=True) for one in (plan, slices))
    assert [payloads.message_bytes(plan.workload, one) for one in (whole, half)] == [64 * 96 * 2, 64 * 96]
    assert payloads.gathered_bytes(plan.workload, whole) == 0.0
    sent = replace(plan, config=whole)
    assert program(sent, 1) == "recv F0 F0 tp all_reduce B0 tp all_reduce send B0 optimizer"
    assert {action.nbytes for action in lowering.program(sent, 0, 1) if action.kind == "send"} == {64 * 96 * 2}


def test_under_deepspeed_a_forward_of_the_steady_state_leaves_behind_the_next_gradient() -> None:
    plan = pair(pp=2, microbatches=3, schedule="1f1b-deepspeed")
    assert program(plan, 0) == ("F0 send F0 F1 recv B0 send F1 B0 F2 recv B1 send F2 B1 recv B2 B2 optimizer")
    assert program(plan, 1) == "recv F0 F0 B0 send B0 recv F1 F1 B1 send B1 recv F2 F2 B2 send B2 optimizer"


def test_under_deepspeed_fewer_microbatches_than_pipeline_ranks_do_not_wait_for_each_other() -> None:
    plan = pair(pp=4, microbatches=2, schedule="1f1b-deepspeed")
    assert program(plan, 0) == "F0 send F0 F1 send F1 recv B0 B0 recv B1 B1 optimizer"
    assert program(plan, 2) == "recv F0 F0 send F0 recv F1 F1 recv B0 send F1 B0 send B0 recv B1 B1 send B1 optimizer"


def sent(plan: Plan, pp_rank: int, replica: int, kind: str) -> Counter[tuple[str, int, int, int, float]]:
    def ends(a: Action) -> tuple[int, int]:
        return (pp_rank, a.peer) if kind == "send" else (a.peer, pp_rank)

    actions = lowering.program(plan, pp_rank, plan.config.num_microbatches[replica])
    return Counter((a.operation, a.microbatch, *ends(a), a.nbytes) for a in actions if a.kind == kind)


@given(data=st.data())
def test_every_message_sent_is_received(data: st.DataObject) -> None:
    plan = data.draw(any_plan(ranks=16))
    for replica in range(plan.config.dp):
        pp_ranks = range(plan.config.pp)
        away = sum((sent(plan, pp_rank, replica, "send") for pp_rank in pp_ranks), Counter())
        here = sum((sent(plan, pp_rank, replica, "recv") for pp_rank in pp_ranks), Counter())
        assert away == here


@given(data=st.data())
def test_all_gradients_are_reduced_once_or_once_each_microbatch(data: st.DataObject) -> None:
    plan = data.draw(any_plan(ranks=16))
    config = plan.config
    operation = config.reduction
    times = config.num_microbatches[0] if config.reduces_each_microbatch else 1
    for pp_rank in range(config.pp):
        actions = lowering.program(plan, pp_rank, config.num_microbatches[0])
        reduced = Counter[str]()
        for a in actions:
            if a.kind in ("start", "collective") and a.group in ("dp", "edp") and a.operation == operation:
                reduced[a.group] += a.nbytes
        stages = plan.stages_of(pp_rank)
        config = plan.config_of(stages)
        held = sum(
            memory.stage_parameters(plan.workload, config, plan.stages[s].layers, s == 0, s == config.num_stages - 1)
            for s in stages
        )
        layers = sum(plan.stages[s].layers for s in stages)
        experts = layers * plan.workload.model.expert_parameters / config.expert_mesh if config.splits_experts else 0.0
        width = {"fp32": 4, "bf16": 2, "fp16": 2}[config.gradient_precision]
        dense = times * width * (held - experts) if config.dp_cp > 1 else 0
        assert reduced["dp"] == pytest.approx(dense, rel=1e-12)
        sharing = config.splits_experts and config.edp > 1
        assert reduced["edp"] == pytest.approx(times * width * experts if sharing else 0, rel=1e-12)


def test_a_program_counts_the_repeats_of_a_period() -> None:
    """F0 F1 B0 F2 B1 ... F9 B8 B9 are pieces 1 to 20; F9 and B9 are of the last microbatch."""
    plan = builders.plan(fleet(cluster(nodes=2)), pp=2, microbatches=10)
    lowered = lowering.Lowered(plan, 0, 10)
    assert [action.kind for action in lowered.piece(8)] == ["F", "send"]  # F4
    assert lowered.repeats(8, 2, 1) == 4  # F5 B4, F6 B5, F7 B6, F8 B7
    assert [lowered.repeats(index, 2, 1) for index in (10, 12, 16, 8)] == [3, 2, 0, 4]
    assert lowered.repeats(8, 4, 2) == 0  # before it are F2 and B0, of the first microbatch
    assert lowered.repeats(8, 2, 2) == 0
    assert lowered.repeats(20, 2, 1) == 0


def test_recomputed_layers_repeat_their_collectives_stage_by_stage() -> None:
    """Two all_reduces for each of three layers, two more for each that is recomputed, one for the embedding and the head."""
    plan = pair(pp=2, tp=2, layers=(3, 3), recompute="full", recompute_layers=(2, 0))
    counts = [[a.times for a in lowering.program(plan, rank, 1) if a.operation == "all_reduce"] for rank in (0, 1)]
    assert counts == [[7.0, 10.0], [6.0, 7.0]]


def test_recomputed_layers_repeat_the_exchanges_of_sequence_and_experts() -> None:
    experts = {"experts": 4, "experts_per_token": 2}
    plan = pair(cp=2, ep=2, layers=(3,), shape=experts, recompute="full", recompute_layers=(2,))
    counts = {(a.kind, a.operation): a.times for a in lowering.program(plan, 0, 1) if a.kind == "ring" or a.group == "ep"}
    assert counts == {("ring", "F"): 3.0, ("ring", "R"): 2.0, ("ring", "B"): 3.0, ("collective", "all_to_all"): 10.0}


@given(data=st.data())
def test_pieces_of_one_form_differ_in_their_microbatches_only(data: st.DataObject) -> None:
    """Also where they were made from one another: in any order, each is the piece that is made by itself."""
    plan = data.draw(any_plan(ranks=16))
    for pp_rank in range(plan.config.pp):
        microbatches = plan.config.num_microbatches[0]
        lowered, alone = (lowering.Lowered(plan, pp_rank, microbatches) for _ in range(2))
        forms: dict[object, tuple[Action, ...]] = {}
        for index in data.draw(st.permutations(range(len(lowered)))):
            piece = lowered.piece(index)
            assert piece == tuple(alone._piece(index))
            if (form := lowered.form(index)) is not None:
                own, other = lowered.microbatch(index), forms.setdefault(form, piece)
                assert [one._replace(microbatch=0) for one in piece] == [one._replace(microbatch=0) for one in other]
                assert all(one.microbatch == own for one in piece if one.kind in ("F", "B", "W", "recv"))
