"""The dynamic programme over splits of layers that differ."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from planner.bounds.unlike_stages import best_pipelines, single_stages
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.ranks import build
from planner.request import Request
from planner.space import stand_in
from sim.analytic import plan_costs
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import request
from tests.planner.unlike import CHEAP_FIRST, PINNED, only_shape, question


def test_cheap_layers_are_many_on_a_stage() -> None:
    wanted = question()
    context, shape = PlanningContext(wanted), only_shape(wanted)
    (found,) = best_pipelines(context, shape, UnlikeCosts(context).classes(shape))
    assert found.pipeline == (("a", 6), ("a", 2))
    closed = [_closed_form(wanted, (("a", n), ("a", 8 - n))) for n in range(1, 8)]
    assert closed.index(min(closed)) == 5
    assert 0.99 * min(closed) < found.seconds <= min(closed) * (1 + 1e-12)


def test_a_pipeline_of_one_stage_has_its_closed_form() -> None:
    wanted = question(replace(PINNED, pp=1))
    context, shape = PlanningContext(wanted), only_shape(wanted)
    (found,) = single_stages(context, shape, UnlikeCosts(context).classes(shape))
    assert found.pipeline == (("a", 8),)
    assert found.seconds == pytest.approx(_closed_form(wanted, found.pipeline), rel=1e-9)
    assert best_pipelines(context, shape, UnlikeCosts(context).classes(shape)) == []


def test_no_split_over_two_classes_is_below_the_bound_of_its_length() -> None:
    nics = (make.nic("ethernet", 1e8),)
    clusters = [
        make.cluster(name, 2, nics=nics, spec=make.device(f"chip-{name}", speed)) for name, speed in (("a", 2e10), ("b", 1e10))
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e8, 0.0),))
    wanted = request(machines, make.model(6, **CHEAP_FIRST), 8, replace(PINNED, pp=None))
    context, shape = PlanningContext(wanted), only_shape(wanted)
    found = best_pipelines(context, shape, UnlikeCosts(context).classes(shape))
    orders = ["".join(dict.fromkeys(name for name, _ in one.pipeline)) for one in found]
    assert sorted(zip(map(len, (one.pipeline for one in found)), orders, strict=True)) == [
        (2, "a"), (2, "ab"), (2, "b"), (2, "ba"), (3, "ab"), (3, "ba"), (4, "ab"), (4, "ba"),
    ]  # fmt: skip
    for one, order in zip(found, orders, strict=True):
        every = [some for some in _pipelines(len(one.pipeline)) if "".join(dict.fromkeys(name for name, _ in some)) == order]
        closed = [_closed_form(wanted, stages) for stages in every]
        assert len(closed) >= 5
        assert one.seconds <= min(closed) * (1 + 1e-9)
        assert _closed_form(wanted, one.pipeline) <= 1.1 * min(closed)


def _pipelines(pp: int) -> list[tuple[tuple[str, int], ...]]:
    """All splits of six layers over one or two clusters of two nodes, each consecutive."""
    clusters = [("a", "b", "b"), ("b", "a", "a"), ("a", "a", "b"), ("b", "b", "a")]
    every = {2: [("a", "b"), ("b", "a"), ("a", "a"), ("b", "b")], 3: clusters, 4: [("a", "a", "b", "b"), ("b", "b", "a", "a")]}
    cuts = itertools.combinations(range(1, 6), pp - 1)
    sizes = [[b - a for a, b in itertools.pairwise((0, *cut, 6))] for cut in cuts]
    return [tuple(zip(names, layers, strict=True)) for names in every[pp] for layers in sizes]


def _closed_form(wanted: Request, stages: tuple[tuple[str, int], ...]) -> float:
    (part,) = stand_in.stand_ins(wanted)
    plan = stand_in.of_model(build(part, only_shape(wanted), stages, "by hand"), wanted)
    seconds = plan_costs.step_seconds(plan)
    assert math.isfinite(seconds)
    return seconds
