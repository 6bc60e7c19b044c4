"""Steps of plans that differ in their layers are those of the engine, whichever of them were built before."""

from __future__ import annotations

import math
import random
from contextlib import suppress
from dataclasses import replace

import pytest

from benchmarks.certificates.scarce import squeezed
from planner.placement.alike_plans import AlikePlans
from planner.placement.ranks import build
from planner.placement.simulation import fits
from planner.request import Request
from planner.space.shape import Shape
from planner.space.shapes import overlaps, searched, variants
from sim.engine.engine import simulate
from sim.errors import NotDefined, NotModelled, PlanError
from sim.plan.parallel_config import BLOCK
from sim.plan.plan import Plan
from tests.more import after
from tests.planner.builders import on_one_cluster, pipelines, random_request, shape
from tests.planner.targets import alike_replicas


class Built:
    """Plans of pipelines of a shape over clusters, and how many of them were built."""

    def __init__(self, request: Request, of: Shape, names: tuple[str, ...]):
        self.request, self.shape, self.names, self.number = request, of, names, 0

    def __call__(self, layers: tuple[int, ...]) -> Plan:
        self.number += 1
        return build(self.request, self.shape, tuple(zip(self.names, layers, strict=True)), "by hand")


@pytest.mark.parametrize("seed", after(12, range(200), last=40))
def test_steps_are_those_of_the_engine(seed):
    """Random fleets, of which some have so little memory that stages recompute layers, and pipelines with as many stages."""
    rng, question = random.Random(f"alike {seed}"), random_request(seed)
    base = rng.choice(list(searched(question)))
    of = rng.choice([one for variant in variants(question, base) for one in overlaps(variant)])
    every = dict[tuple[str, ...], list[tuple[int, ...]]]()
    for stages in pipelines(question, of):
        names, layers = zip(*stages, strict=True)
        if min(layers) >= of.vpp:
            every.setdefault(names, []).append(layers)
    if not every:
        return
    names = rng.choice(list(every))
    some = rng.sample(every[names], min(6, len(every[names])))
    if of.recompute == BLOCK and rng.random() < 0.6:
        with suppress(PlanError):
            plan = build(question, of, tuple(zip(names, some[0], strict=True)), "by hand")
            question = squeezed(question, plan, rng.choice((0.6, 0.2)))
    if rng.random() < 0.3:
        question = replace(question, target=alike_replicas())
    built = Built(question, of, names)
    alike = AlikePlans(built, of.recompute == BLOCK)
    for layers in some:
        with suppress(PlanError, NotModelled):
            found, plan = alike.seconds(layers), built(layers)
            step = simulate(plan).step_s
            assert found == pytest.approx(step, rel=1e-9), (layers, fits(plan))
            assert alike.seconds(layers, 0.5 * step) in (math.inf, pytest.approx(step))


def test_a_plan_is_built_for_each_number_of_layers_of_a_stage_alone():
    """Of the second plan the first stage is new, of the third the last one; the fourth has stages of the others."""
    built = Built(on_one_cluster(8, 6, nodes=3), shape(), ("c", "c", "c"))
    alike, work = AlikePlans(built, True), [0]
    for layers in ((2, 3, 3), (3, 3, 2), (2, 4, 2), (3, 2, 3), (2, 4, 2), (3, 3, 2)):
        alike.seconds(layers)
        work.append(alike.work)
    assert built.number == 4
    assert sorted(set(work)) == work
    assert alike.seconds((2, 3, 3)) == pytest.approx(simulate(built((2, 3, 3))).step_s, rel=1e-12)


def test_plans_that_differ_in_more_than_their_layers_are_refused():
    one, other = (Built(on_one_cluster(6, 6, nodes=2), shape(schedule=name), ("c", "c")) for name in ("1f1b", "gpipe"))
    alike = AlikePlans(lambda layers: (one if layers == (3, 3) else other)(layers), True)
    alike.seconds((3, 3))
    with pytest.raises(NotModelled):
        alike.seconds((2, 4))


def test_what_cannot_be_built_raises():
    def refuses(layers: tuple[int, ...]) -> Plan:
        raise NotDefined("no such plan")

    with pytest.raises(NotDefined):
        AlikePlans(refuses, True).seconds((1, 1))
