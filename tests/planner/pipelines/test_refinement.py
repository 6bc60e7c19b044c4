"""Changes of layers, microbatches and their sizes that make plans of unlike pipelines faster."""

from __future__ import annotations

import pytest

from planner.pipelines.assembly import step_of
from planner.pipelines.refinement import Entry, refined
from planner.time_limit import TimeLimit
from sim.engine.engine import simulate
from sim.plan.pipelines import PipelinesPlan
from sim.results.report import predict
from tests.more import after
from tests.planner.pipelines.drawn import drawn
from tests.sim.plan.pipelines_by_hand import nodes, pipelines

NO_LIMIT = TimeLimit(float("inf"))


def predicted(plan: PipelinesPlan) -> PipelinesPlan:
    return plan.annotated(predict(plan, simulate(plan)))


def entries(plan: PipelinesPlan) -> list[tuple[tuple[int, ...], int, int]]:
    return [(one.layers, one.microbatches, one.size) for one in map(Entry.of, plan.pipelines)]


def test_layers_and_samples_are_balanced():
    """Equal devices, and a network that takes no time: two with three layers and one are as fast as one with all four, until a
    layer moves; then they take two thirds of the twelve samples."""
    shapes = (
        {"pp": 2, "layers": (3, 1), "microbatches": 6},
        {"layers": (4,), "microbatches": 6},
    )
    first = predicted(pipelines(nodes(3, bandwidth=1e15), shapes, shape={"hidden": 3072}, seq_len=2048))
    found = refined(first, NO_LIMIT)
    assert [layers for layers, *_ in entries(found)] == [(2, 2), (4,)]
    (_, many, size), (_, few, other) = entries(found)
    assert many * size + few * other == 12
    assert many * size == 8
    assert step_of(found) < 0.8 * step_of(first)


def test_few_large_microbatches_launch_fewer_kernels():
    """Short sequences take the time that the host needs to launch kernels: each pipeline gets one microbatch."""
    shapes = ({"layers": (2,), "microbatches": 2}, {"layers": (2,), "microbatches": 4})
    first = predicted(pipelines(nodes(2, bandwidth=1e15), shapes, seq_len=64))
    found = refined(first, NO_LIMIT)
    assert entries(found) == [((2,), 1, 2), ((2,), 1, 4)]
    assert step_of(found) < 0.4 * step_of(first)


def test_nothing_changes_without_time():
    first = predicted(pipelines(nodes(3), ({"pp": 2, "layers": (3, 1)}, {"layers": (4,)})))
    assert refined(first, TimeLimit(0.0)) is first


@pytest.mark.parametrize("seed", after(4, range(40), last=8))
def test_the_plan_is_never_slower_and_trains_the_batch(seed):
    _, plan = drawn(seed)
    if plan is not None:
        first = predicted(plan)
        found = refined(first, NO_LIMIT)
        assert step_of(found) <= step_of(first)
        assert step_of(found) == pytest.approx(simulate(found).step_s)
        assert found.workload == plan.workload
        assert [one.placement for one in found.pipelines] == [one.placement for one in plan.pipelines]
