"""A pipeline along a V on given clusters: the fastest split that memory and the request allow."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from planner.placement.ranks import build
from planner.placement.simulation import fits
from planner.request import Request, Wishes
from planner.search.placed_v import PlacedV
from planner.space.shape import Shape
from sim.analytic.evaluator import evaluate
from tests import builders as make
from tests.planner.builders import request, shape

SHAPE = shape(schedule="dualpipev", vpp=2, dp=2, ep=2)


def question(memory: float = 1e12) -> Request:
    """Six nodes of one device, whose NICs have no limit of bandwidth; a mixture of nine layers, twelve microbatches."""
    spec = replace(make.device(speed=2e9), memory=memory)
    machines = make.fleet(make.cluster(nodes=6, devices=1, nics=(make.nic(bandwidth=1e12, latency=1e-3),), spec=spec))
    model = make.model(9, experts=4, experts_per_token=2, tied_embeddings=False)
    return request(machines, model, 24, Wishes(schedule="dualpipev"))


def every(asked: Request, own: Shape) -> list[tuple[float, tuple[int, ...]]]:
    """(seconds on an idle network, split) of all pipelines of three ranks that fit."""
    splits = [split for split in itertools.product(range(2, 6), repeat=3) if sum(split) == 9]
    plans = [build(asked, own, tuple(("c", k) for k in split), "by hand") for split in splits]
    return sorted((float(evaluate([plan])[0]), plan.layers) for plan in plans if fits(plan))


def test_the_fastest_split_is_found_and_its_seconds_are_the_bound() -> None:
    asked = question()
    placed = PlacedV(asked, SHAPE, ("c",) * 3, (True, True))
    bound, plan = placed.search(math.inf, 0.0)
    seconds, layers = every(asked, SHAPE)[0]
    assert plan is not None
    assert (bound, plan.layers) == (pytest.approx(seconds, rel=1e-12), layers)
    assert placed.search(seconds * 0.999, 0.0) == (seconds * 0.999, None)


@pytest.mark.parametrize(("room", "left"), [(3.08e9, 0), (3.091e9, 1), (3.094e9, 5), (3.1e9, 10)])
def test_splits_without_room_are_left_out(room: float, left: int) -> None:
    """Bytes that a rank may take beside the head-room, and the number of splits that fit."""
    asked = question(room / (1 - question().topology.memory_headroom))
    own = every(asked, SHAPE)
    bound, plan = PlacedV(asked, SHAPE, ("c",) * 3, (True, True)).search(math.inf, 0.0)
    seconds, layers = own[0] if own else (math.inf, None)
    assert (bound, None if plan is None else plan.layers) == (pytest.approx(seconds), layers)
    assert len(own) == left


def test_balanced_plans_are_those_of_the_even_and_of_the_slowest_ranks() -> None:
    layers = [plan.layers for plan in PlacedV(question(), SHAPE, ("c",) * 3, (True, True)).balanced()]
    assert layers[1:] == [(5, 2, 2), (2, 2, 5)]
    assert layers[0] == every(question(), SHAPE)[0][1]


def test_reductions_that_nothing_overlaps_are_those_of_the_plan() -> None:
    (plan, *_) = PlacedV(question(), SHAPE, ("c",) * 3, (False, False)).balanced()
    assert (plan.config.overlap_grad_reduce, plan.config.overlap_param_gather) == (False, False)
