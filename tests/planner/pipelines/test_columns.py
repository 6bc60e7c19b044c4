"""Columns: plans of parts, with the seconds of their steps and gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.pipelines.columns import ClosedForms, Columns, of_samples
from planner.search.budgets import Budgets
from planner.strategies import certified
from sim.analytic.plan_costs import step_seconds
from sim.kernels.gradient_buckets import buckets_of_stage
from sim.plan.pipelines import alike
from tests.planner.pipelines.fleets import two_kinds


@pytest.fixture(scope="module")
def columns():
    return Columns(two_kinds())


def test_columns_of_a_node_of_two_devices(columns):
    """Plans with one replica apart from those with two; each with microbatches down to one sample."""
    one, two = columns.of((0, 1), True), columns.of((0, 1), False)
    assert {device.cluster for column in (*one, *two) for device in column.plan.placement} == {"b"}
    assert {column.plan.config.dp for column in one} == {1}
    assert {column.plan.config.dp for column in two} <= {2}
    assert {column.plan.config.microbatch_size for column in one} >= {1}
    assert len({column.key for column in (*one, *two)}) == len(one) + len(two)
    assert columns.of((0, 1), True) is one
    assert columns.is_known((0, 1), True)
    assert not columns.is_known((2, 0), True)
    assert not columns.of((1, 0), False)


def test_a_step_is_the_line_through_two_closed_forms(columns):
    for column in columns.of((0, 1), True):
        config = column.plan.config
        for many in (config.num_microbatches[0], config.num_microbatches[0] // 2):
            plan = of_samples(column.plan, (many,) * config.dp, config.microbatch_size)
            assert column.step(many * config.dp) == pytest.approx(step_seconds(plan))
            assert column.samples(column.step(many * config.dp)) == many * config.dp * config.microbatch_size
        assert column.samples(0.0) == 0


def test_gradients_of_a_single_device(columns):
    """A ring of two ranks: half of the gradients, and half of the weights, leave and reach the node over its NIC of 1e9 bytes
    a second; of three ranks two thirds."""
    column = columns.of((1, 0), True)[0]
    (bucket,) = buckets_of_stage(alike(column.plan, 1), 0)
    nbytes = sum(n for _, n in (*bucket.whole.gradients, *bucket.whole.weights))
    assert column.gradients(2) == column.gradients_s == pytest.approx(nbytes / 2 / 1e9)
    assert column.gradients(3) == pytest.approx(nbytes * 2 / 3 / 1e9)


def test_gradients_over_a_slow_trunk():
    """Partners are in the cluster with which gradients take longest: here over a trunk of a tenth of the rate of the NICs."""
    fast = two_kinds()
    (trunk,) = fast.topology.fleet.trunks
    slow = replace(fast.topology.fleet, trunks=(replace(trunk, bandwidth=trunk.bandwidth / 10),))
    columns = Columns(replace(fast, topology=replace(fast.topology, fleet=slow)))
    (column, *_), (other, *_) = columns.of((1, 0), True), Columns(fast).of((1, 0), True)
    assert column.gradients_s == pytest.approx(10 * other.gradients_s)


def test_columns_under_another_schedule(columns):
    """Zero-bubble schedules fill pipelines sooner, and one stage as before."""
    for column in columns.of((0, 1), True):
        assert columns.under(column, "1f1b") is column
        other = columns.under(column, "zb-h1")
        assert other.plan.config.schedule == "zb-h1"
        assert other.key == column.key
        if column.plan.config.pp == 1:
            assert other.step(8) == pytest.approx(column.step(8))
        else:
            assert other.step(8) < column.step(8)
        assert columns.under(column, "zb-h1") is other


def test_pipelines_use_all_nodes_of_a_part(columns):
    """The fastest pipeline of a part may leave nodes idle; another one has a stage on each."""
    every = columns.of((2, 0), True)
    assert 2 in {len({device.node for device in column.plan.placement}) for column in every}


def test_sequences_are_divided_inside_nodes():
    """Both devices of the node of `b` hold half of each sequence; each node of `a` has one device."""
    columns = Columns(two_kinds())
    whole = columns.of((0, 1), True)
    columns.divide_sequences((0, 1), True)
    every, searched = columns.of((0, 1), True), columns.searched
    assert every[: len(whole)] == whole
    assert {(column.plan.config.cp, column.plan.config.tp) for column in every[len(whole) :]} == {(2, 1)}
    assert len({column.key for column in every}) == len(every)
    columns.divide_sequences((0, 1), True)
    columns.divide_sequences((2, 0), True)
    assert {column.plan.config.cp for column in columns.of((2, 0), True)} == {1}
    assert columns.of((0, 1), True) is every
    assert columns.searched == searched + 1  # of whole sequences on (2, 0)


def test_gradients_of_context_parallel_ranks():
    """A ring of both cp ranks and one rank of another node sends two thirds of the gradients and weights over the NIC."""
    columns = Columns(two_kinds())
    columns.divide_sequences((0, 1), True)
    column = next(one for one in columns.of((0, 1), True) if one.plan.config.cp == 2)
    (bucket,) = buckets_of_stage(alike(column.plan, 1), 0)
    nbytes = sum(n for _, n in (*bucket.whole.gradients, *bucket.whole.weights))
    assert column.plan.config.pp == 1
    assert column.gradients(2) == column.gradients_s == pytest.approx(nbytes * 2 / 3 / 1e9)


def test_columns_of_a_mixture_divide_experts_when_asked():
    """Both devices of the node of `b` have half of the experts; no dense model has such columns."""
    columns = Columns(two_kinds(experts=4, memory=4e9))
    whole = columns.of((0, 1), False)
    assert {column.plan.config.ep for column in whole} <= {1}
    columns.divide_experts((0, 1), False)
    every, searched = columns.of((0, 1), False), columns.searched
    assert every[: len(whole)] == whole
    assert {column.plan.config.ep for column in every[len(whole) :]} == {2}
    assert len({column.key for column in every}) == len(every)
    columns.divide_experts((0, 1), False)
    assert columns.searched == searched
    dense = Columns(two_kinds())
    dense.divide_experts((0, 1), False)
    assert dense.searched == 0


def test_a_part_without_room_has_no_column():
    assert Columns(two_kinds(memory=1e5)).of((1, 0), True) == ()


def test_closed_forms_take_the_place_of_simulations(columns):
    plan = columns.of((2, 0), True)[0].plan
    predicted = ClosedForms().simulate_up_to(plan, 0.0)
    assert predicted.prediction is not None
    assert predicted.prediction.step_s == step_seconds(plan)


def test_a_plan_that_only_fits_is_priced_in_closed_form_too():
    """Where the search for a column finds no plan in its budgets, one that fits memory is taken, without a simulation."""
    context = PlanningContext(two_kinds())
    context.proves, context.timelines = False, ClosedForms()
    plan = certified.plan(context.request, context, Budgets(first_shapes=0, partial_shapes=0, draft_shapes=0, mixed_tries=0))
    assert plan.prediction is not None
    assert plan.prediction.step_s == step_seconds(plan)
    assert plan.prediction.mfu == 0.0
    assert context.timelines.timeline is None
