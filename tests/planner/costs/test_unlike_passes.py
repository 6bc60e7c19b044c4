"""Passes of stages of layers that differ are linear in the layers of each kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.costs.layer_kinds import Layers
from planner.costs.unlike_passes import KindSeconds, LinearPasses, layer_seconds
from planner.request import Request
from sim.analytic.stage_costs import StageCosts
from tests.planner.unlike import PINNED, only_shape, question


def stage_of(wanted: Request) -> tuple[Layers, StageCosts]:
    """The layers of a request, and the stages at the first position of its only cluster."""
    (cluster,) = wanted.clusters()
    return Layers(wanted.workload), PlanningContext(wanted).cluster_costs.stages(cluster, only_shape(wanted))[0]


@pytest.mark.parametrize("ends", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("facts", [{}, {"mtp_layers": 1}, {"dense_layers": 0, "sliding_window": 16, "sliding_window_every": 2}])
def test_costs_are_those_of_all_layers_together(ends, facts) -> None:
    layers, costs = stage_of(question(**facts))
    passes = LinearPasses(costs, layers, ends)
    for counts in ((1, 0), (0, 1), (2, 3), (4, 4)):
        whole = replace(costs, workload=layers.of(counts, ends[1])).of(sum(counts), *ends)
        assert passes.cost(counts) == pytest.approx(whole, rel=1e-12)


def test_rings_of_context_parallelism_are_not_linear() -> None:
    """Each layer hides its own exchange, so that layers of two kinds hide less than their sum of both."""
    layers, costs = stage_of(question(replace(PINNED, pp=1, cp=2), dense_layers=0, sliding_window=16, sliding_window_every=2))
    whole = replace(costs, workload=layers.of((2, 2), False)).of(4, False, False)
    assert LinearPasses(costs, layers, (False, False)).cost((2, 2)) == whole


def test_a_layer_takes_no_more_than_a_stage_of_it() -> None:
    layers, costs = stage_of(question())
    for kind in (0, 1):
        seconds = layer_seconds([costs], layers, kind)
        alone = LinearPasses(costs, layers, (False, False)).cost(layers.only(kind, 1))
        assert 0 < seconds[0] <= alone.forward and seconds[1] <= alone.backward
        assert KindSeconds.of(seconds, False) == KindSeconds(*seconds[:2], sum(seconds[:2]), sum(seconds[:2]))
        assert KindSeconds.of(seconds, True).waited == seconds[0]
