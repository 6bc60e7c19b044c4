"""Changes of layers, microbatches and their sizes that make plans of unlike pipelines faster."""

from __future__ import annotations

import pytest

from benchmarks.certificates.pipelines import owned, plans, with_microbatches
from planner.pipelines.assembly import step_of
from planner.pipelines.budgets import Work
from planner.pipelines.refinement import Entry, refined
from planner.time_limit import TimeLimit
from sim.engine.engine import simulate
from sim.plan.pipelines import PipelinesPlan, of_plans
from sim.plan.plan import MadeBy
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
    found = refined([first], Work(NO_LIMIT))
    assert [layers for layers, *_ in entries(found)] == [(2, 2), (4,)]
    (_, many, size), (_, few, other) = entries(found)
    assert many * size + few * other == 12
    assert many * size == 8
    assert step_of(found) < 0.8 * step_of(first)


def test_few_large_microbatches_launch_fewer_kernels():
    """Short sequences take the time that the host needs to launch kernels: each pipeline gets one microbatch."""
    shapes = ({"layers": (2,), "microbatches": 2}, {"layers": (2,), "microbatches": 4})
    first = predicted(pipelines(nodes(2, bandwidth=1e15), shapes, seq_len=64))
    found = refined([first], Work(NO_LIMIT))
    assert entries(found) == [((2,), 1, 2), ((2,), 1, 4)]
    assert step_of(found) < 0.4 * step_of(first)


def test_changes_that_are_slower_alone_are_made_together():
    """From one microbatch of four samples on each of a cluster with two devices and one with one, under 1f1b. The fastest plan
    has other sizes, numbers and layers, and another schedule; no single change is faster."""
    asked = owned(80)
    starts = [next(plans(asked, ((name, 0),), schedule="1f1b", overlap_param_gather=True)) for name in ("c0", "c1")]
    two = [one for one in plans(asked, (("c1", 0),), schedule="1f1b", overlap_param_gather=True) if one.config.pp == 2]
    own = [with_microbatches(one, 1, 4) for one in (starts[0], next(one for one in two if one.layers == (1, 2)))]
    first = predicted(of_plans([one for one in own if one is not None], MadeBy("by hand", "1")))
    found = refined([first], Work(NO_LIMIT))
    assert entries(found) == [((3,), 1, 2), ((2, 1), 3, 2)]
    assert found.schedule == "zb-h2"
    assert step_of(found) == pytest.approx(0.0313892, rel=1e-5)
    assert step_of(first) == pytest.approx(0.0334588, rel=1e-5)


def test_layers_move_in_all_pipelines_of_equal_stages():
    """Where one pipeline alone moves its layer, the gradients of a layer are summed by themselves."""
    asked = owned(148)
    common = {"schedule": "zb-h1", "overlap_param_gather": False}
    both = [next(one for one in plans(asked, ((name, 0),), **common) if one.layers == (1, 2)) for name in ("c0", "c1")]
    own = [with_microbatches(one, *shares) for one, shares in zip(both, ((1, 4), (2, 2)), strict=True)]
    first = predicted(of_plans([one for one in own if one is not None], MadeBy("by hand", "1")))
    found = refined([first], Work(NO_LIMIT))
    assert [layers for layers, *_ in entries(found)] == [(2, 1), (2, 1)]
    assert step_of(found) == pytest.approx(0.1300190, rel=1e-5)
    assert step_of(first) == pytest.approx(0.1330852, rel=1e-3)


def test_weights_are_gathered_when_it_is_faster():
    """Two pipelines of two stages: gathered as the optimizer is done, weights do not delay the first messages."""
    asked = owned(10)
    nodes = [next(one for one in plans(asked, ((name, 0),), schedule="1f1b") if one.layers == (2, 1)) for name in ("c0", "c1")]
    own = [with_microbatches(one, 1, 4) for one in nodes]
    first = predicted(of_plans([one for one in own if one is not None], MadeBy("by hand", "1")))
    assert first.pipelines[0].config.overlap_param_gather
    found = refined([first], Work(NO_LIMIT))
    assert not found.pipelines[0].config.overlap_param_gather
    assert step_of(found) < 0.95 * step_of(first)


def test_nothing_changes_without_time():
    first = predicted(pipelines(nodes(3), ({"pp": 2, "layers": (3, 1)}, {"layers": (4,)})))
    assert refined([first], Work(TimeLimit(0.0))) is first


@pytest.mark.parametrize("seed", after(4, range(40), last=8))
def test_the_plan_is_never_slower_and_trains_the_batch(seed):
    _, plan = drawn(seed)
    if plan is not None:
        first = predicted(plan)
        found = refined([first], Work(NO_LIMIT))
        assert step_of(found) <= step_of(first)
        assert step_of(found) == pytest.approx(simulate(found).step_s)
        assert found.workload == plan.workload
        assert [one.placement for one in found.pipelines] == [one.placement for one in plan.pipelines]
