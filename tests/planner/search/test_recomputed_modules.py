"""Plans that recompute modules of layers with experts, which the search tries beside its proof."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import exporters
from holmes_sim.printing.certificates import certificate as text
from planner.placement.recomputed_modules import ModuleChoices
from planner.placement.simulation import fits, simulate_plan, step
from planner.search.certificate import certificate
from planner.search.recomputed_modules import modules_seconds, try_modules
from planner.time_limit import TimeLimit
from tests.planner.builders import shape
from tests.planner.search.mixtures import PINNED, question
from tests.planner.search.searches import incumbent, simulated

BLOCK = shape(recompute="block", microbatch_size=2)


def test_modules_leave_more_layers_on_the_device_with_little_memory():
    """From any split of the layers, the fastest one of all splits is found."""
    asked = question()
    starts = [simulated(asked, BLOCK, ("a", layers), ("b", 6 - layers)) for layers in (2, 3, 4)]
    splits = (ModuleChoices(starts[0]).plan_with((layers, 6 - layers)) for layers in range(1, 6))
    least = min(step(simulate_plan(one)) for one in splits if one is not None and fits(one))
    for start in starts:
        kept = incumbent(asked, best=start)
        try_modules(kept)
        assert kept.best is not None and step(kept.best) == pytest.approx(least, rel=1e-9)
        assert (kept.best.layers, kept.best.config.stage_recompute) == ((3, 3), ("layernorm+moe_act", "none"))
    assert [round(step(start), 3) for start in starts] == [0.365, 0.325, 0.412]
    assert round(least, 3) == 0.295


@pytest.mark.parametrize("asked", [question(replace(PINNED, recompute="block")), question(rooms=(2e9, 2e9))])
def test_nothing_is_tried_where_recomputation_is_pinned_or_memory_is_ample(asked):
    start = simulated(asked, BLOCK, ("a", 2), ("b", 4))
    kept = incumbent(asked, best=start)
    try_modules(kept)
    assert kept.best is start and kept.context.effort.times == {}


def test_nothing_is_tried_after_the_time_limit_for_other_objectives_or_for_frameworks():
    start = simulated(question(), BLOCK, ("a", 2), ("b", 4))
    late, other = incumbent(question(), best=start), incumbent(question(), best=start)
    late.limit = late.context.limit = TimeLimit(0.0)
    other.context.every_step = True
    framework = incumbent(replace(question(), target=exporters.target("megatron")), best=start)
    for kept in (late, other, framework):
        try_modules(kept)
        assert kept.best is start and kept.context.effort.times == {}
    assert modules_seconds(other) == modules_seconds(framework) == 0
    assert modules_seconds(incumbent(replace(question(), time_limit=20.0), best=start)) == 2


def test_the_certificate_does_not_hold_for_such_plans():
    kept = incumbent(question(), best=simulated(question(), BLOCK, ("a", 3), ("b", 3)))
    try_modules(kept)
    assert kept.best is not None
    found = certificate(kept, kept.best, [0.25], None, ())
    assert (found.status, found.beside_space) == ("feasible", True)
    assert "recomputation of chosen modules (recompute_modules, stage_recompute) (tried, without a proof)" in found.outside
    assert "Recomputation of modules is not searched: nothing is proved" in text(kept.best, found)
