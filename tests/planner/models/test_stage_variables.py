"""Variables and terms of the stage programme."""

from __future__ import annotations

import pytest

from planner.costs.node_classes import node_classes
from planner.models.pipeline_constraints import require_pipeline
from planner.models.stage_variables import stage_sizes
from tests.planner.builders import on_one_cluster, on_two_clusters, shape
from tests.planner.models.problem import NEVER, fix, solved, variables


def test_sizes_are_those_that_fit_and_are_within_the_cutoff():
    """Six microbatches; a stage of 3 layers has slots of 18 layers' seconds."""
    question = on_one_cluster(layers=5, batch=6, nodes=2)
    context, stages = variables(question, shape())
    order = tuple(node_classes(context, shape()))
    slot = order[0].cost("middle", 3).cycle
    assert stage_sizes(order, NEVER)["middle", 0] == [1, 2, 3, 4, 5]
    assert stage_sizes(order, 6 * slot * (1 + 1e-9))["middle", 0] == [1, 2, 3]
    assert stage_sizes(order, 6 * slot * (1 - 1e-9))["middle", 0] == [1, 2]
    assert stages.sizes == stage_sizes(order, NEVER)


def test_there_is_a_variable_for_each_size_and_no_border_behind_the_last_class():
    _, stages = variables(on_two_clusters(layers=3, nodes=2), shape())
    every = [(i, k) for i in (0, 1) for k in (1, 2, 3)]
    assert list(stages.first) == list(stages.last) == list(stages.middle) == list(stages.chain) == every
    assert list(stages.border) == every[:3]
    assert stages.unit == stages.m * min(option.layer_seconds for option in stages.order)


@pytest.mark.parametrize(
    "pipeline", [(("a", 1), ("a", 1), ("b", 2), ("b", 3)), (("a", 3), ("b", 4)), (("b", 2), ("b", 5)), (("a", 4), ("a", 3))]
)
def test_a_solution_is_read_back_as_the_pipeline(pipeline):
    _, stages = variables(on_two_clusters(layers=7, nodes=2), shape())
    require_pipeline(stages, (1, None))
    fix(stages, pipeline)
    assert solved(stages.programme) is not None
    assert stages.solution() == pipeline


def test_terms_of_the_largest_stage_are_increments_along_the_chain():
    _, stages = variables(on_one_cluster(layers=4, nodes=3), shape())
    terms = stages.of_largest(0, lambda k: float(k * k))
    assert [value for _, value in terms] == [1.0, 3.0, 5.0, 7.0]
    assert [variable for variable, _ in terms] == list(stages.chain.values())


def test_the_step_is_at_least_its_terms():
    _, stages = variables(on_one_cluster(layers=4, batch=6, nodes=3), shape())
    require_pipeline(stages, (2, 2))
    fix(stages, (("c", 1), ("c", 3)))
    stages.bound_step("first", [(stages.first[0, 1], 5.0), (stages.last[0, 3], 2.0), (stages.last[0, 2], 100.0)])
    solution = solved(stages.programme)
    assert solution is not None
    assert solution.objective * stages.unit == pytest.approx(7.0)
