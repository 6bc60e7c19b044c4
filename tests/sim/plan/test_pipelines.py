"""Plans of unlike pipelines: sections of layers, which ranks sum their gradients, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import PlanError
from sim.kernels import memory
from sim.plan.pipelines import PipelinesPlan, of_plans
from sim.plan.plan import MadeBy
from sim.plan.sections import Section
from tests import builders as make
from tests.sim.plan.pipelines_by_hand import devices, entries, nodes, pipelines

HAND = MadeBy("by hand", "1")
EXPERTS = {"experts": 6, "experts_per_token": 2}
THREE_ONE = {"pp": 2, "layers": (3, 1), "microbatches": 3}
TWO_TWO = {"pp": 2, "layers": (2, 2), "microbatches": 3}
ALONE = {"layers": (4,), "microbatches": 2}
PAIR = ({"pp": 2, "layers": (3, 1), "microbatches": 3}, {"pp": 1, "layers": (4,), "microbatches": 2, "dp": 2})


def test_sections_are_the_runs_of_layers_that_no_stage_cuts():
    plan = pipelines(nodes(4), (THREE_ONE, TWO_TWO))
    assert plan.sections == (
        Section(0, 0, 2, True, False),
        Section(1, 2, 3, False, False),
        Section(2, 3, 4, False, True),
    )
    held = [[[one.number for one in plan.sections_of(p, stage)] for stage in (0, 1)] for p in (0, 1)]
    assert held == [[[0, 1], [2]], [[0], [1, 2]]]


def test_gradients_of_a_layer_are_summed_over_the_ranks_that_hold_it():
    """Ranks 0 and 1 are a pipeline of two stages, 2 and 3 two replicas of one stage, 4 to 6 a pipeline whose first stage has
    the embedding only."""
    plan = pipelines(nodes(7), (*PAIR, {"pp": 3, "layers": (0, 2, 2), "microbatches": 1}))
    assert plan.first_ranks == (0, 2, 4)
    found = [(one.first, one.past_last, one.embedding, one.head, group.ranks) for one, (group,) in plan.gradient_groups()]
    assert found == [
        (0, 0, True, False, (0, 2, 3, 4)),
        (0, 2, False, False, (0, 2, 3, 5)),
        (2, 3, False, False, (0, 2, 3, 6)),
        (3, 4, False, True, (1, 2, 3, 6)),
    ]


def test_a_rank_of_a_smaller_tp_sums_each_slice_with_the_ranks_that_hold_it():
    plan = pipelines(nodes(4, devices=2), ({"tp": 4, "layers": (4,)}, {"tp": 2, "layers": (4,)}, {"layers": (4,)}))
    ((section, groups),) = plan.gradient_groups()
    assert section.slices == 4
    assert [group.ranks for group in groups] == [(0, 4, 6), (1, 4, 6), (2, 5, 6), (3, 5, 6)]


def test_context_parallel_ranks_sum_the_gradients_of_the_weights_that_they_share():
    """Ranks 0 to 3: tp 2, and cp 2 outside it; rank 4 alone has both slices."""
    plan = pipelines(nodes(3, devices=2), ({"tp": 2, "cp": 2, "layers": (4,)}, {"layers": (4,)}))
    ((_, groups),) = plan.gradient_groups()
    assert [group.ranks for group in groups] == [(0, 2, 4), (1, 3, 4)]
    assert [one.config.gradient_ranks for one in plan.pipelines] == [3, 3]
    assert [(group.kind, group.ranks) for group in plan.pipelines[0].groups] == [
        ("tp", (0, 1)), ("tp", (2, 3)), ("cp", (0, 2)), ("cp", (1, 3)),
    ]  # fmt: skip


def test_experts_are_summed_by_the_ranks_that_hold_the_same_ones():
    """Ranks 0 to 7: tp 2 and four replicas that share experts, a quarter each; ranks 8 and 9: two that have half each; rank 10
    has all. Groups: both slices of the first quarter, then of the next ones."""
    shapes = ({"tp": 2, "dp": 4, "ep": 4, "layers": (4,)}, {"dp": 2, "ep": 2, "layers": (4,)}, {"layers": (4,)})
    plan = pipelines(nodes(6, devices=2), shapes, shape={"experts": 4, "experts_per_token": 2})
    ((section, groups),) = plan.expert_gradient_groups()
    assert (section.slices, section.expert_parts, section.expert_slices) == (2, 4, 2)
    assert [group.ranks for group in groups] == [
        (0, 8, 10), (1, 8, 10), (2, 8, 10), (3, 8, 10), (4, 9, 10), (5, 9, 10), (6, 9, 10), (7, 9, 10),
    ]  # fmt: skip
    ((_, dense),) = plan.gradient_groups()
    assert [group.ranks for group in dense] == [(0, 2, 4, 6, 8, 9, 10), (1, 3, 5, 7, 8, 9, 10)]
    assert [one.config.other_edp for one in plan.pipelines] == [2, 2, 2]
    assert [one.config.expert_gradient_ranks for one in plan.pipelines] == [3, 3, 3]
    assert pipelines(nodes(4), PAIR).expert_gradient_groups() == ()


def test_tensor_parallel_ranks_may_have_whole_experts():
    """Ranks 0 to 3: tp 4 with a quarter of whole experts each; ranks 4 and 5: tp 2 with half of each expert."""
    shapes = ({"tp": 4, "etp": 1, "ep": 4, "layers": (4,)}, {"tp": 2, "layers": (4,)})
    common = {"shape": {"experts": 4, "experts_per_token": 2}, "sequence_parallel": True}
    ((section, groups),) = pipelines(nodes(4, devices=2), shapes, **common).expert_gradient_groups()
    assert (section.slices, section.expert_parts, section.expert_slices) == (4, 4, 2)
    assert [group.ranks for group in groups] == [(0, 4), (0, 5), (1, 4), (1, 5), (2, 4), (2, 5), (3, 4), (3, 5)]


def test_groups_are_those_of_hexiscale():
    """The example of its code: pipelines of stages on 4, 2 and 2 and on 4 and 4 devices, with 16, 8 and 8 and with 16 and 16
    layers (gen_layer_tp_pp_groups of hexiscale/gen_hetero_groups.py, Relaxed-System-Lab/FlashFlex 5ee1726b), which lists the
    groups (0, 8), (4, 12) and (6, 12) of the first rank of each stage."""
    first = {"tp": 4, "stage_tp": (4, 2, 2), "pp": 3, "layers": (16, 8, 8)}
    plan = pipelines(nodes(2, devices=8), (first, {"tp": 4, "pp": 2, "layers": (16, 16)}))
    found = {(one.first, one.past_last): [group.ranks for group in groups] for one, groups in plan.gradient_groups()}
    assert found == {
        (0, 16): [(0, 8), (1, 9), (2, 10), (3, 11)],
        (16, 24): [(4, 12), (4, 13), (5, 14), (5, 15)],
        (24, 32): [(6, 12), (6, 13), (7, 14), (7, 15)],
    }


def test_a_head_before_the_last_stage_ends_the_last_section():
    plan = pipelines(nodes(5), ({"pp": 3, "layers": (2, 2, 0), "head": 1}, {"pp": 2, "layers": (1, 3)}))
    assert [(one.first, one.past_last, one.head) for one in plan.sections] == [(0, 1, False), (1, 2, False), (2, 4, True)]
    assert plan.sections_of(0, 2) == ()


def test_a_head_alone_is_a_section_wherever_it_is():
    """Ranks 0 to 5 are a pipeline whose third stage has the head only, and three idle stages behind it."""
    plan = pipelines(nodes(7), ({"pp": 6, "layers": (2, 2, 0, 0, 0, 0), "head": 2}, {"layers": (4,)}))
    found = [(one.first, one.past_last, one.head, group.ranks) for one, (group,) in plan.gradient_groups()]
    assert found == [(0, 2, False, (0, 6)), (2, 4, False, (1, 6)), (4, 4, True, (2, 6))]


@given(
    cuts=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=2, max_size=4),
    tps=st.lists(st.sampled_from([1, 2, 4]), min_size=4, max_size=4),
)
def test_every_weight_is_summed_once_over_the_cp_ranks_of_each_replica(cuts, tps):
    layers = max(map(sum, cuts))
    shapes = [
        {
            "tp": tp, "pp": len(cut), "dp": 1 + (tp == 2), "cp": 1 + (tp == 1),
            "layers": (*cut[:-1], cut[-1] + layers - sum(cut)),
        }
        for cut, tp in zip(cuts, tps, strict=False)
    ]  # fmt: skip
    plan = pipelines(nodes(40, devices=4), shapes)
    held: list[tuple[int, int]] = []
    for section, groups in plan.gradient_groups():
        assert len(groups) == section.slices
        for group in groups:
            assert len(group.ranks) == plan.gradient_ranks == len(set(group.ranks))
        held += [(one, section.number) for one in range(section.first, section.past_last)]
    assert [layer for layer, _ in held] == list(range(layers))
    assert [one.embedding for one in plan.sections].count(True) == [one.head for one in plan.sections].count(True) == 1


def test_state_is_shared_over_the_replicas_of_all_pipelines():
    """ZeRO 1: the fp32 weights and moments of a weight (12 bytes) are shared over as many ranks as hold it."""
    plan, alone = pipelines(nodes(4), PAIR), entries(nodes(4), PAIR)
    own = [sum(memory.torch_bytes(one)) for one in plan.pipelines]
    once = [sum(memory.torch_bytes(one)) for one in alone]
    parameters = alone[0].workload.model.parameters
    assert once[0] - own[0] == pytest.approx(12 * parameters * (1 - 1 / 3))
    assert once[1] - own[1] == pytest.approx(12 * parameters * (1 / 2 - 1 / 3))


def test_an_entry_has_no_dp_groups_of_its_own():
    plan = pipelines(nodes(4), PAIR)
    assert [group.kind for one in plan.pipelines for group in one.groups] == ["pp"]
    assert plan.workload.global_batch_size == 3 + 4
    assert plan.placement == make.every_device(nodes(4))


def changed(plan: PipelinesPlan, **config: object) -> PipelinesPlan:
    """The plan with other settings of the first pipeline."""
    first, *others = plan.pipelines
    return PipelinesPlan((replace(first, config=replace(first.config, **config)), *others), HAND)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: pipelines(nodes(2), (THREE_ONE,)), "pipelines: 1 given; a plan of alike replicas needs no pipelines"),
        (
            lambda: pipelines(nodes(4), (THREE_ONE, TWO_TWO | {"placement": devices(2, 1)})),
            "pipelines[1].placement: c/node1/dev0 is already a device of pipelines[0]",
        ),
        (
            lambda: of_plans((entries(nodes(9), (THREE_ONE,))[0], entries(nodes(4), (ALONE,))[0]), HAND),
            "pipelines[1]: its topology and workload, but for global_batch_size, must be those of pipelines[0]",
        ),
        (
            lambda: changed(pipelines(nodes(4), (THREE_ONE, TWO_TWO)), zero_stage=0),
            "pipelines[1].config.zero_stage: 1, but 0 in pipelines[0]; "
            "pipelines differ in stages, tp, cp, ep, microbatches and recomputation only",
        ),
        (
            lambda: changed(pipelines(nodes(4), (THREE_ONE, TWO_TWO)), other_dp_cp=3),
            "pipelines[0]: other_dp_cp 3 is not 1",
        ),
        (
            lambda: pipelines(nodes(4), (THREE_ONE, TWO_TWO), zero_stage=2),
            "pipelines[0].config.zero_stage: 2 is not modelled in unlike pipelines; 0 or 1",
        ),
        (
            lambda: changed(pipelines(nodes(4, devices=2), (THREE_ONE | {"cp": 2}, TWO_TWO)), cp_algo="ulysses"),
            "pipelines[0].config.cp_algo: ulysses is not modelled in unlike pipelines; leave it out",
        ),
        (
            lambda: pipelines(nodes(4), (ALONE | {"layers": (2, 2), "vpp": 2}, ALONE), schedule="interleaved"),
            "pipelines[0].config.vpp: 2 is not modelled in unlike pipelines; leave it out",
        ),
        (
            lambda: pipelines(nodes(5), ({"tp": 2, "layers": (4,)}, {"tp": 3, "layers": (4,)})),
            "pipelines: tp 2 and tp 3; of two degrees, one must divide the other",
        ),
        (
            lambda: pipelines(
                nodes(5), ({"dp": 2, "ep": 2, "layers": (4,)}, {"dp": 3, "ep": 3, "layers": (4,)}), shape=EXPERTS
            ),
            "pipelines: ep 2 and ep 3; of two degrees, one must divide the other",
        ),
        (
            lambda: changed(pipelines(nodes(4), ({"dp": 2, "ep": 2, "layers": (4,)}, ALONE), shape=EXPERTS), other_edp=3),
            "pipelines[0]: other_edp 3 is not 1",
        ),
        (
            lambda: pipelines(nodes(4), PAIR, shape={"tied_embeddings": True}),
            "pipelines: some have one stage and some several, and both ends share a tied embedding; its gradient is not summed "
            "between them; an untied head, or several stages in all",
        ),
    ],
)
def test_faults(made, why):
    with pytest.raises(PlanError) as error:
        made()
    assert str(error.value) == why
