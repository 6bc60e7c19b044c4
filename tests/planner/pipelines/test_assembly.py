"""Plans of unlike pipelines from columns: their nodes, and the division of a batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.pipelines.assembly import assembled, balanced, computed, divided, simulated, step_of, together
from planner.pipelines.columns import Column, Columns, of_samples
from sim.engine.engine import simulate
from tests.more import after
from tests.planner.pipelines.drawn import drawn
from tests.planner.pipelines.fleets import two_kinds

ASKED = two_kinds(batch=12)


@pytest.fixture(scope="module")
def chosen() -> tuple[Column, Column, Column]:
    """Both nodes of `a` and the node of `b`, with microbatches of one sample and one replica each."""
    columns, found = Columns(ASKED), list[Column]()
    for part in ((1, 0), (0, 1)):
        found.append(next(column for column in columns.of(part, True) if column.plan.config.microbatch_size == 1))
    fast, slow = found
    return fast, fast, slow


def test_a_batch_is_divided_by_the_seconds_of_a_microbatch(chosen):
    """Two slow devices are about as fast as a fast one: four samples for each."""
    assert divided(12, chosen) == (4, 4, 4)
    assert divided(3, chosen) == (1, 1, 1)
    assert divided(2, chosen) is None


@pytest.mark.parametrize("size", [1, 2, 4])
def test_bisection_begins_the_greedy_division(chosen, size):
    """Each microbatch goes to the column that has it done first, those of the first column first where several do."""
    columns = [replace(column, plan=of_samples(column.plan, (1,) * column.plan.config.dp, one))
               for column, one in zip(chosen, (size, 1, 2), strict=True)]  # fmt: skip
    for batch in (16, 57, 200, 513):
        numbers, left = [1, 1, 1], batch - size - 3
        while left:
            able = [index for index, one in enumerate((size, 1, 2)) if one <= left]
            soonest = min(able, key=lambda index: (columns[index].step(numbers[index] + 1), index))
            numbers[soonest] += 1
            left -= (size, 1, 2)[soonest]
        assert divided(batch, columns) == tuple(numbers)


def test_columns_together_have_nodes_and_can_compute_the_batch_in_time(chosen):
    """In the time of five microbatches, each column computes five: two columns have too little time for twelve samples, and
    more than two of `a`, or two of `b`, have no nodes."""
    fast, _, slow = chosen
    below = fast.step(5) * (1 + 1e-6)
    assert (fast.samples(below), slow.samples(below)) == (5, 5)
    found = [list(together((fast, slow), number, (2, 1), 12, below)) for number in (2, 3)]
    assert found == [[], [(fast, fast, slow)]]
    assert list(together((fast, slow), 2, (2, 1), 10, below)) == [(fast, fast), (fast, slow)]


def test_copies_of_a_column_are_on_nodes_of_their_own(chosen):
    plan = assembled(ASKED, chosen, (4, 5, 3))
    assert plan is not None
    nodes = [{(device.cluster, device.node) for device in one.placement} for one in plan.pipelines]
    assert nodes == [{("a", 0)}, {("a", 1)}, {("b", 0)}]
    assert [one.workload.global_batch_size for one in plan.pipelines] == [4, 5, 3]
    assert plan.made_by.strategy == "unlike-pipelines"


def test_microbatches_move_to_the_pipeline_that_ends_first(chosen):
    plan = assembled(ASKED, chosen, (8, 2, 2))
    assert plan is not None
    plan, timeline = simulated(plan) or pytest.fail("abandoned")
    ends = computed(plan, timeline)
    assert max(ends) == ends[0] < step_of(plan)
    found = balanced(ASKED, chosen, (8, 2, 2))
    assert found is not None
    assert [one.workload.global_batch_size for one in found.pipelines] == [4, 4, 4]
    assert step_of(found) < step_of(plan)


def test_a_division_far_from_the_deadline_is_left(chosen):
    """Eight, two and two samples: the first node takes twice as long as the best division."""
    found = balanced(ASKED, chosen, (4, 4, 4))
    assert found is not None
    assert balanced(ASKED, chosen, (4, 4, 4), below=step_of(found) * 1.01) is not None
    assert balanced(ASKED, chosen, (8, 2, 2), below=step_of(found) * 0.1) is None


@pytest.mark.parametrize("seed", after(6, range(200), last=12))
def test_only_plans_above_a_limit_are_abandoned(seed):
    _, plan = drawn(seed)
    if plan is not None:
        step = simulate(plan).step_s
        exact, shorter = simulated(plan, step), simulated(plan, step * 0.8)
        assert exact is not None
        assert step_of(exact[0]) == step
        assert shorter is None or step_of(shorter[0]) == step
