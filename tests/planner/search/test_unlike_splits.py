"""Splits of layers that differ over pipelines with virtual stages."""

from __future__ import annotations

import itertools

from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.ranks import build
from planner.search.unlike_splits import splits
from planner.space import stand_in
from sim.analytic import plan_costs
from tests.planner.unlike import interleaved, only_shape, question


def test_ranks_have_the_layers_with_the_shortest_step() -> None:
    wanted = question(interleaved(2))
    (part,) = stand_in.stand_ins(wanted)
    context, shape = PlanningContext(wanted), only_shape(wanted)
    (found,) = splits(context, part, shape, UnlikeCosts(context).classes(shape))
    seconds = {}
    for first in range(2, 7):
        stages = (("a", first), ("a", 8 - first))
        seconds[stages] = plan_costs.step_seconds(stand_in.of_model(build(part, shape, stages, "by hand"), wanted))
    assert found == min(seconds, key=seconds.__getitem__)
    assert len(set(itertools.chain(seconds.values()))) > 3


def test_further_layers_take_the_place_of_some_on_the_last_rank() -> None:
    wanted = question(interleaved(2), mtp_layers=1)
    (part,) = stand_in.stand_ins(wanted)
    context, shape = PlanningContext(wanted), only_shape(wanted)
    (found,) = splits(context, part, shape, UnlikeCosts(context).classes(shape))
    assert sum(layers for _, layers in found) == 8
    assert found[0][1] > found[1][1]
