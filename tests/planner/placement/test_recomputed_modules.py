"""What each stage recomputes where modules may be chosen: that which takes least of what fits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from planner.placement.recomputed_modules import ModuleChoices
from planner.placement.simulation import fits
from planner.space.tried_modules import CHOICES
from sim.analytic.evaluator import evaluate
from sim.plan.parallel_config import RECOMPUTE
from sim.plan.plan import Plan
from sim.plan.recomputation import kind_and_modules
from tests.planner.builders import shape
from tests.planner.search.mixtures import question
from tests.planner.search.searches import simulated


def every(plan: Plan) -> Iterator[Plan]:
    """The plan with each recomputation of its two stages: nothing, modules, or some whole layers."""
    options = [[(kind, 0) for kind in ("none", *CHOICES)] + [("full", count + 1) for count in range(n)] for n in plan.layers]
    for pair in itertools.product(*options):
        kinds, counts = zip(*pair, strict=True)
        most = max((kind_and_modules(kind)[0] for kind in kinds), key=RECOMPUTE.index)
        config = plan.config.recomputing(most)
        if len(set(kinds)) > 1:
            config = replace(config, stage_recompute=kinds)
        elif most == "selective":
            config = replace(config, recompute_modules=kind_and_modules(kinds[0])[1])
        yield replace(plan, config=replace(config, recompute_layers=counts) if most == "full" else config)


@pytest.mark.parametrize(
    ("rooms", "layers", "kinds"),
    [
        ((60e6, 1e9), (3, 3), ("layernorm+moe_act", "none")),
        ((60e6, 1e9), (4, 2), ("moe", "none")),
        ((60e6, 1e9), (2, 4), ()),
        ((45e6, 45e6), (3, 3), ("moe",)),
        ((50e6, 50e6), (3, 3), ("full", "layernorm+moe_act")),
    ],
)
def test_no_other_recomputation_is_faster(rooms, layers, kinds):
    asked = question(rooms=rooms)
    plan = simulated(asked, shape(recompute="block", microbatch_size=2), *zip("ab", layers, strict=True))
    found = ModuleChoices(plan).plan_with(layers)
    assert found is not None and fits(found)
    least = min(float(evaluate([one])[0]) for one in every(plan) if fits(one))
    assert float(evaluate([found])[0]) == pytest.approx(least, rel=1e-12)
    assert (found.config.stage_recompute or found.config.recompute_modules) == kinds


def test_layers_that_fit_in_no_way_have_no_plan():
    asked = question(rooms=(45e6, 45e6))
    choices = ModuleChoices(simulated(asked, shape(recompute="block", microbatch_size=2), ("a", 3), ("b", 3)))
    assert [layers for layers in range(1, 6) if choices.plan_with((layers, 6 - layers)) is None] == [1, 2, 5]
