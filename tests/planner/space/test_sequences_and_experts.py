"""Degrees of context and expert parallelism that are searched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.limits import Limits
from planner.request import Request, Wishes
from planner.space.shapes import searched, shapes
from sim.errors import Infeasible
from sim.plan.allowed import Allowed
from tests import builders as make
from tests.planner.space.test_shapes import small_request


@pytest.mark.parametrize(
    ("wishes", "room"),
    [
        (Wishes(ep=4), "of at most 2 x cp 1"),
        (Wishes(dp=1, ep=2), "1 x cp 1"),
        (Wishes(cp=2, ep=4), "of at most 1 x cp 2"),
    ],
)
def test_experts_take_their_ranks_from_dp_and_cp(wishes, room):
    with pytest.raises(Infeasible) as caught:
        list(shapes(small_request(wishes=wishes, experts=4, experts_per_token=1)))
    assert str(caught.value) == f"no layout fits {wishes}; ep {wishes.ep} must divide dp {room}, from which it takes its ranks"


def test_pinned_cp_and_ep_divide_what_is_left():
    question = small_request(make.cluster("a", nodes=2, devices=4), wishes=Wishes(cp=2, ep=4), experts=4, experts_per_token=1)
    found = list(shapes(question))
    assert {(s.tp, s.dp) for s in found} == {(1, 2), (1, 4), (2, 2)}
    assert {(s.cp, s.ep, s.slots) for s in found} == {(2, 4, 4), (2, 4, 8)}


def divided(question: Request) -> set[tuple[int, int]]:
    """(cp, ep) of the shapes that are searched."""
    return {(shape.cp, shape.ep) for shape in searched(question)}


def test_short_sequences_without_experts_are_not_divided():
    wide = small_request(make.cluster("a", nodes=2, devices=8), batch=16)
    assert list(searched(wide)) == list(shapes(wide, by_stage=True))
    assert divided(wide) == {(1, 1)}


@pytest.mark.parametrize(
    ("seq_len", "degrees"), [(4096, {1}), (8192, {1, 2}), (12288, {1, 2}), (16380, {1, 2}), (131072, {1, 2, 4, 8, 16})]
)
def test_cp_leaves_a_rank_4096_tokens_in_two_chunks(seq_len, degrees):
    """Of 131,072 tokens cp 32 leaves 4,096, but there are 16 devices."""
    question = small_request(make.cluster("a", nodes=2, devices=8))
    question = replace(question, workload=replace(question.workload, seq_len=seq_len))
    assert {cp for cp, _ in divided(question)} == degrees


def test_ep_divides_experts_and_replicas():
    """12 experts on up to 8 replicas, which divide a batch of 24: 1, 2, 3, 4, 6, 8 of them."""
    question = small_request(make.cluster("a", nodes=2, devices=4), batch=24, experts=12, experts_per_token=2)
    assert {ep for _, ep in divided(question)} == {1, 2, 3, 4, 6}
    assert all(shape.dp % shape.ep == 0 for shape in searched(question) if shape.etp is None)


@pytest.mark.parametrize(
    ("experts", "line"),
    [
        ({}, "etp 5: model tiny has no experts; leave it out"),
        ({"experts": 4, "experts_per_token": 2}, "etp 5 must divide ffn_hidden 384, the width of an expert of tiny"),
    ],
)
def test_a_wrong_etp_is_refused(experts, line):
    question = small_request(wishes=Wishes(etp=5), **experts)
    with pytest.raises(Infeasible) as caught:
        list(searched(question))
    assert str(caught.value) == line


def test_experts_are_searched_whole_and_divided_by_tensor_parallelism():
    """Four experts on two nodes of four devices: with tp 2, two replicas hold them at etp 1, and four at etp 2."""
    question = small_request(make.cluster("a", nodes=2, devices=4), batch=24, experts=4, experts_per_token=2)
    found = {(shape.tp, shape.ep, shape.etp, shape.dp) for shape in searched(question) if shape.tp == 2 and shape.ep == 4}
    assert found == {(2, 4, None, 4), (2, 4, 1, 2), (2, 4, 1, 4)}
    assert all(shape.etp is None for shape in searched(question) if shape.tp == 1), "an etp of 1 is that of tp 1"
    assert all(shape.config(question.workload, 1).edp >= 1 for shape in searched(question)), "every mesh fits"
    pinned = replace(question, wishes=Wishes(etp=2))
    assert {shape.etp or shape.tp for shape in searched(pinned)} == {2}


def test_limits_of_etp_are_kept_and_their_values_searched():
    """Eight devices: tp 4 with experts divided by 2, which no search without the limit has."""
    question = small_request(make.cluster("a", nodes=2, devices=4), batch=24, experts=4, experts_per_token=2)
    limited = replace(question, limits=Limits(dimensions=(("etp", Allowed(values=(2,))),)))
    found = {(shape.tp, shape.etp) for shape in searched(limited)}
    assert (4, 2) in found
    assert {etp or tp for tp, etp in found} == {2}
    assert (4, 2) not in {(shape.tp, shape.etp) for shape in searched(question)}


@pytest.mark.parametrize(
    ("wishes", "degrees"),
    [
        (Wishes(ep=2), {(1, 2), (2, 2)}), (Wishes(cp=1), {(1, 1), (1, 2), (1, 4)}), (Wishes(cp=4), {(4, 1), (4, 2), (4, 4)}),
        (Wishes(zero_shard_size=2), {(1, 1), (2, 1)}),
    ],
)  # fmt: skip
def test_pinned_degrees_are_kept_in_the_search(wishes, degrees):
    question = small_request(make.cluster("a", nodes=2, devices=4), wishes=wishes, experts=4, experts_per_token=1)
    assert divided(replace(question, workload=replace(question.workload, seq_len=8192))) == degrees
