"""Stages over node classes in an order: monotone envelopes, the least tail, errors that propagate."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.certificates.fleets import draw
from planner.bounds.greedy_filling import Filling
from planner.bounds.ordered_stages import OrderedStages
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.space.shape import Shape
from planner.space.shapes import searched, variants
from sim.errors import Infeasible
from tests.planner.real_nodes import EIGHT_H100, on_real_nodes


def test_the_least_tail_of_a_first_stage_is_not_that_of_one_layer():
    """Llama-3-8B on 8 H100, dp 4: reductions hide better behind the buckets of three layers than behind that of one."""
    question = on_real_nodes(EIGHT_H100, 1, "llama-3-8b", 64, 8192)
    context = PlanningContext(question)
    (option,) = node_classes(context, Shape(1, 4, 1, "none", "1f1b", 1, 1))
    tails = [option.cost("first", k).tail(option.config) for k in range(1, 9)]
    assert tails[0] == pytest.approx(15.393e-3, rel=1e-3)
    assert min(tails) == tails[2] == pytest.approx(13.282e-3, rel=1e-3)
    assert OrderedStages(context, (option,)).first_tail == min(tails)


@given(st.integers(0, 400), st.data())
def test_what_a_stage_holds_is_monotone(seed, data):
    """The envelope grows with the layers; with fewer layers left, a stage leaves no more for those before it."""
    question = draw(seed, 5_000)
    context = PlanningContext(question)
    shapes = []
    with suppress(Infeasible):
        shapes = [one for base in searched(question) for one in variants(question, base) if node_classes(context, one)]
    assume(shapes)
    drawn = data.draw(st.sampled_from(shapes))
    order = data.draw(st.permutations(node_classes(context, drawn)))
    stages = OrderedStages(context, tuple(order))
    for i in range(len(order)):
        for role in ("first", "middle", "last"):
            sizes = [stages.sizes(i, role).envelope(k) for k in range(1, stages.layers + 1)]
            for small, large in pairwise(sizes):
                assert small.own <= large.own
                assert small.begin <= large.begin
                assert small.both <= large.both
                assert small.busy <= large.busy * (1 + 1e-12)
                assert small.lane <= large.lane
    if not stages.possible:
        return
    seconds = data.draw(st.floats(0.3, 3.0)) * stages.sizes(0, "middle").exact(stages.layers).own
    filling = Filling(stages, seconds, [option.max_stages for option in order], None)
    last = len(order) - 1
    found = [filling.fewest_before(last, "last", n, 0) for n in range(last + 2, stages.layers + 1)]
    assert all(few is None or many is None or few <= many for few, many in pairwise(found))
    assert all(many is None or few is not None for few, many in pairwise(found))
