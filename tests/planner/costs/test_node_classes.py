"""Node classes: costs of stages of one cluster, and which clusters hold a shape."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from planner.costs.node_classes import holds, node_classes
from planner.placement.ranks import build
from planner.request import Wishes
from planner.space.shapes import Shape, overlaps, split_backward
from sim.analytic.evaluator import evaluate
from sim.errors import NoRoute, NotDefined, NotModelled
from sim.hardware.cluster import Fabric
from tests import builders as make
from tests.planner.builders import families, request


@pytest.mark.parametrize("seed", range(300, 340))
def test_no_pipeline_of_one_stage_is_faster_than_its_bounds(seed):
    """The closed form of its own variant, and the bound for all schedules and ZeRO stages, of any that can be evaluated."""
    for context, every in families(seed, 8):
        ways = [
            {o.cluster.name: o.as_single_stage for o in node_classes(context, one)}
            for one in overlaps(split_backward(every[0]))
        ]
        for shape in (one for variant in every for one in overlaps(variant)):
            for option in node_classes(context, shape):
                name = option.cluster.name
                for evenly, own in enumerate(option.as_single_stage):
                    with suppress(NotModelled, NoRoute, NotDefined):
                        stages = ((name, option.workload.model.layers),)
                        (seconds,) = evaluate([build(context.request, shape, stages, "by hand", bool(evenly))]) * (1 + 1e-9)
                        assert own.single_seconds() <= seconds
                        assert min(classes[name][evenly].single_bound for classes in ways) <= seconds


def test_groups_that_are_searched_stand_alike_on_nodes():
    """Nodes of six devices: groups of 4 would lie on one node here and on two there; pinned they may."""
    question = request(make.fleet(make.cluster("a", nodes=4, devices=6)), make.model(experts=12, experts_per_token=1), 12)
    (six,) = question.clusters()
    sizes = {ep for ep in (1, 2, 3, 4, 6, 12) if holds(question, six, Shape(1, 12, 1, "none", "1f1b", 1, 1, ep=ep))}
    assert sizes == {1, 2, 3, 6, 12}
    pinned = replace(question, wishes=Wishes(ep=4))
    assert holds(pinned, six, Shape(1, 12, 1, "none", "1f1b", 1, 1, ep=4))
    narrow = replace(six, fabric=Fabric(nodes_per_leaf=2, oversubscription=4.0))
    assert not holds(question, narrow, Shape(1, 12, 1, "none", "1f1b", 1, 1, ep=12))
    assert holds(question, narrow, Shape(1, 12, 1, "none", "1f1b", 1, 1, ep=6))
