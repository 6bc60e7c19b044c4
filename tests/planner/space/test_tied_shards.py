"""Sums of a tied embedding's gradient by shards: where the search takes them, and where its plan leaves them out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import exporters
from planner.limits import Limits
from planner.placement.simulation import step
from planner.request import Request, Wishes
from planner.space.tied_shards import is_on, with_tied_shards
from sim.plan.allowed import Allowed
from tests import builders as make
from tests.planner.builders import plan_of, request, shape


def question(tied: bool = True, speed: float = 1e11, wishes: Wishes | None = None) -> Request:
    """Four nodes of one device; the table is as large as 20 layers."""
    nics = (make.nic("ethernet", 1e8),)
    machines = make.fleet(make.cluster(nodes=4, nics=nics, spec=make.device(speed=speed)))
    return request(machines, make.model(8, vocab=24_000, tied_embeddings=tied), 8, wishes or Wishes(pp=2, dp=2, tp=1))


@pytest.mark.parametrize(
    ("one", "on"),
    [
        (shape(dp=2), True),
        (shape(dp=2, zero_stage=3), True),
        (shape(cp=2), True),
        (shape(dp=1), False),
        (shape(dp=2, zero_stage=0), False),
        (shape(dp=2, all_reduces=True), False),
    ],
)
def test_where_the_gradient_is_sharded(one, on):
    assert with_tied_shards(question(), one).tied_shards is on
    assert not with_tied_shards(question(tied=False), one).tied_shards


def test_a_pipeline_of_one_stage_sums_nothing():
    tied = with_tied_shards(question(), shape(dp=2))
    assert not tied.config(question().workload, 1).tied_shards and tied.config(question().workload, 2).tied_shards
    assert not replace(tied, zero_stage=0).config(question().workload, 2).tied_shards


@pytest.mark.parametrize("name", exporters.names())
def test_no_framework_sums_by_shards(name):
    """Launchers and data take any plan; torchtitan refuses tied embeddings in a pipeline for another reason."""
    for_target = replace(question(), target=exporters.target(name))
    assert is_on(for_target) is (name not in exporters.frameworks() or name == "torchtitan")


def test_a_plan_sums_by_shards_where_that_is_faster():
    slow, fast = question(speed=1e7), question()
    found, whole = plan_of(fast), plan_of(replace(fast, target=exporters.target("megatron")))
    assert found is not None and whole is not None
    assert found.config.tied_shards and not whole.config.tied_shards
    assert step(found) < step(whole)
    assert found.certificate is not None and found.certificate.lower_bound_s <= step(found)
    assert ("tied_shards", ("on",)) in [(axis.name, axis.values) for axis in found.certificate.space]
    other = plan_of(slow)
    assert other is not None and not other.config.tied_shards, "as fast without it, so that frameworks can run the plan"


def test_zero_stages_that_are_listed_may_have_no_shards():
    free = question(wishes=Wishes(pp=2, dp=2, tp=1))
    limits = Limits((("zero_stage", Allowed((0, 1))),))
    plan = plan_of(replace(free, limits=limits))
    assert plan is not None and plan.config.zero_stage in (0, 1)
