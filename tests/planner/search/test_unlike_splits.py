"""Splits of layers that differ over pipelines with virtual stages."""

from __future__ import annotations

import itertools
from dataclasses import replace

from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.ranks import build
from planner.search.unlike_splits import splits
from planner.space import stand_in
from sim.analytic import plan_costs
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import request
from tests.planner.unlike import CHEAP_FIRST, interleaved, only_shape, question


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


def test_orders_of_many_classes_do_not_depend_on_the_order_of_the_clusters() -> None:
    """Of four clusters of unlike speed and memory, the same pipelines are tried in whatever order the topology has them."""
    facts = {"a": (1e10, 64e9), "b": (2e10, 48e9), "c": (3e10, 96e9), "d": (1.5e10, 80e9)}
    tried = []
    for names in ("abcd", "dbca"):
        clusters = (
            make.cluster(one, devices=1, spec=make.device(one, speed=facts[one][0], memory=facts[one][1])) for one in names
        )
        trunks = tuple(Trunk(pair, "ethernet", 1e9, 1e-5) for pair in itertools.combinations(names, 2))
        nics = (make.nic("ethernet", 1e9),)
        machines = make.fleet(*(replace(one, node=replace(one.node, nics=nics)) for one in clusters), trunks=trunks)
        wanted = request(machines, make.model(16, **CHEAP_FIRST), 8, replace(interleaved(2), pp=4))
        (part,) = stand_in.stand_ins(wanted)
        context, shape = PlanningContext(wanted), only_shape(wanted)
        tried.append(sorted(splits(context, part, shape, UnlikeCosts(context).classes(shape))))
    assert tried[0] == tried[1] != []
    assert len(tried[0]) == 4
