"""Groups of context and expert parallelism: ranks, groups that reduce gradients, divisions that are refused, plan files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sim.errors import PlanError
from sim.formats import planfile
from sim.plan.derived_groups import gradient_groups
from sim.plan.groups import group_ranks
from sim.plan.parallel_config import ParallelConfig
from tests.sim.context_and_experts import EXPERTS, described, nodes


def of_kind(found: Iterator[tuple[str, tuple[int, ...]]], kind: str) -> list[tuple[int, ...]]:
    """The ranks of each group of one kind."""
    return [ranks for name, ranks in found if name == kind]


def test_ranks_are_numbered_as_in_megatron() -> None:
    """Order tp-cp-ep-dp-pp, by hand after Megatron-LM's RankGenerator.

    rank = tp + 2 (cp + 2 (dp + 2 pp)) and rank = tp + 2 (ep + 2 (expert dp + 2 pp)): ep divides the ranks of cp and dp.
    """
    config = ParallelConfig(tp=2, cp=2, ep=2, dp=2, pp=2, num_microbatches=(1, 1))
    assert config.world_size == 16
    assert of_kind(group_ranks(config), "tp") == [(r, r + 1) for r in range(0, 16, 2)]
    assert of_kind(group_ranks(config), "cp") == [(0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15)]
    assert of_kind(group_ranks(config), "ep") == [(0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15)]
    assert of_kind(group_ranks(config), "dp") == [(0, 4), (1, 5), (2, 6), (3, 7), (8, 12), (9, 13), (10, 14), (11, 15)]
    assert of_kind(group_ranks(config), "pp") == [(r, r + 8) for r in range(8)]
    assert config.coordinates(13) == (1, 2, 1), "tp 1, dp_cp 2 (cp 0 of replica 1), stage 1"
    assert config.rank(1, 2, 1) == 13


def test_expert_groups_may_span_cp_and_dp() -> None:
    config = ParallelConfig(cp=2, ep=4, dp=4, num_microbatches=(1,) * 4)
    assert of_kind(group_ranks(config), "cp") == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert of_kind(group_ranks(config), "ep") == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert of_kind(group_ranks(config), "dp") == [(0, 2, 4, 6), (1, 3, 5, 7)]


def test_experts_on_a_mesh_of_their_own_have_the_groups_of_megatron() -> None:
    """By hand after Megatron-Core's expert_decoder_rank_generator: rank = etp + etp x (ep + ep x edp) inside a stage.

    tp 4, cp 1, dp 2 for dense weights; etp 1, ep 4, edp 2, or etp 2, ep 2, edp 2, for experts."""
    common = {"tp": 4, "dp": 2, "pp": 2, "num_microbatches": (1, 1), "sequence_parallel": True}
    folded = ParallelConfig(ep=4, etp=1, **common)
    assert of_kind(group_ranks(folded), "ep") == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15)]
    assert of_kind(group_ranks(folded), "etp") == []
    divided = ParallelConfig(ep=2, etp=2, **common)
    assert of_kind(group_ranks(divided), "etp") == [(r, r + 1) for r in range(0, 16, 2)]
    assert of_kind(group_ranks(divided), "ep") == [(r, r + 2) for r in (0, 1, 4, 5, 8, 9, 12, 13)]
    assert (folded.edp, divided.edp, folded.expert_rows, divided.expert_rows) == (2, 2, 1, 1)
    wide = ParallelConfig(ep=8, etp=1, **common)
    assert of_kind(group_ranks(wide), "ep") == [tuple(range(8)), tuple(range(8, 16))]
    assert (wide.edp, wide.expert_rows) == (1, 2)


def test_an_etp_of_tp_is_left_out() -> None:
    assert ParallelConfig(tp=2, etp=2) == ParallelConfig(tp=2)


def test_gradients_of_experts_on_a_mesh_of_their_own_are_summed_across_it() -> None:
    facts = {"dp": 2, "pp": 2, "shape": EXPERTS, "sequence_parallel": True}
    found = gradient_groups(nodes(tp=4, ep=4, etp=1, **facts))
    assert [group.ranks for group in found if group.kind == "edp"] == [(r, r + 4) for r in (0, 1, 2, 3, 8, 9, 10, 11)]
    alone = gradient_groups(nodes(tp=4, etp=1, **facts))
    assert [group.ranks for group in alone if group.kind == "edp"] == [tuple(range(8)), tuple(range(8, 16))]


def test_gradients_of_experts_are_reduced_in_smaller_groups_than_dense_ones() -> None:
    plan = nodes(tp=2, cp=2, ep=2, dp=2, pp=2, shape=EXPERTS)
    found = [(group.kind, group.ranks) for group in gradient_groups(plan)]
    assert [ranks for kind, ranks in found if kind == "dp"] == [(0, 2, 4, 6), (1, 3, 5, 7), (8, 10, 12, 14), (9, 11, 13, 15)]
    assert [ranks for kind, ranks in found if kind == "edp"] == [
        (0, 4), (1, 5), (2, 6), (3, 7), (8, 12), (9, 13), (10, 14), (11, 15),
    ]  # fmt: skip


def test_a_gradient_group_across_nodes_uses_the_nic_of_the_node() -> None:
    plan = nodes(cp=4, dp=2)
    assert {(group.nic, group.transport) for group in plan.groups if group.kind == "cp"} == {("intra_node", "intra_node")}
    assert [(group.nic, group.transport) for group in gradient_groups(plan)] == [("infiniband", "rdma")]


def test_without_cp_the_dp_groups_reduce_the_gradients() -> None:
    plan = nodes(tp=2, dp=4)
    assert gradient_groups(plan) == tuple(group for group in plan.groups if group.kind == "dp")


def test_experts_of_a_single_rank_are_not_reduced() -> None:
    assert [group.kind for group in gradient_groups(nodes(dp=2, ep=2, shape=EXPERTS))] == ["dp"]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"dp": 2, "ep": 4}, "ep 4 does not divide dp 2 x cp 1, the ranks of which it divides"),
        ({"dp": 2, "ep": 2}, "config.ep: 2 does not divide experts 0 of tiny"),
        ({"dp": 5, "ep": 5, "shape": EXPERTS}, "config.ep: 5 does not divide experts 12 of tiny"),
        ({"tp": 2, "dp": 2, "ep": 4, "etp": 4}, "etp 4 x ep 4 does not divide tp 2 x cp 1 x dp 2, the ranks of a stage"),
        ({"dp": 2, "etp": 2}, "config.etp: 2 does not divide experts 0 of tiny"),
        ({"dp": 5, "etp": 5, "shape": EXPERTS}, "config.etp: 5 does not divide ffn_hidden 384"),
        (
            {"tp": 6, "dp": 4, "ep": 4, "etp": 1, "shape": EXPERTS, "sequence_parallel": True},
            "etp 1 x ep 4 with tp 6: one must divide the other",
        ),
        (
            {"tp": 2, "dp": 2, "ep": 4, "etp": 1, "shape": EXPERTS},
            "etp 1 unlike tp 2 is not modelled without sequence_parallel; Megatron-Core requires that for experts, too",
        ),
        ({"cp": 3}, "config.cp: seq_len 64 is not a multiple of 2 x cp 3"),
        (
            {"cp": 2, "attention": "unfused"},
            "cp 2 needs attention flash: its ring exchanges keys and values of fused attention",
        ),
        (
            {"dp": 2, "ep": 2, "microbatches": (1, 2), "shape": EXPERTS},
            "config.ep: ranks of one ep group must have the same number of microbatches",
        ),
        (
            {"capacity_factor": 6.5, "shape": EXPERTS},
            "config.routing.capacity_factor: 6.5 is above 6, with which an expert takes every token",
        ),
    ],
)  # fmt: skip
def test_an_impossible_division_is_refused(facts: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        nodes(**facts)
    assert str(caught.value) == message


def test_a_plan_file_keeps_degrees_and_groups() -> None:
    plan = nodes(tp=2, cp=2, ep=2, dp=2, pp=2, shape=EXPERTS | {"shared_ffn_hidden": 96})
    plan = described(plan)
    written = planfile.to_json(plan)
    read = planfile.from_text("plan.json", written)
    assert (read.config, read.groups, read.workload) == (plan.config, plan.groups, plan.workload)
    assert planfile.to_json(read) == written
    assert {group["kind"] for group in planfile.json.loads(written)["groups"]} == {"tp", "pp", "dp", "cp", "ep"}
