"""Passes of stages of layers that differ are linear in the layers of each kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.costs.layer_kinds import Layers
from planner.costs.unlike_passes import KindSeconds, LinearPasses, layer_seconds
from planner.request import Request
from sim.analytic.stage_costs import StageCosts
from tests import builders as make
from tests.planner.builders import request
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


def test_products_of_one_kind_hide_sums_of_another() -> None:
    """Four layers with wide products leave more of them than one layer with narrow ones lacks; one of them leaves less."""
    facts = {"experts": 2, "experts_per_token": 1, "ffn_hidden": 384, "shared_ffn_hidden": 24}
    model = make.model(8, dense_layers=4, dense_ffn_hidden=1024, **facts)
    machines = make.fleet(make.cluster("a", nodes=1, devices=2, spec=make.device(speed=1e14)))
    layers, costs = stage_of(request(machines, model, 8, replace(PINNED, tp=2, pp=1)))
    costs = replace(costs, config=replace(costs.config, tp_overlap=True, sequence_parallel=True))

    def forward(counts: tuple[int, ...]) -> float:
        return replace(costs, workload=layers.of(counts, False)).of(sum(counts), False, False).forward

    assert forward((4, 1)) < forward((1, 1)) + 3 * (forward((2, 0)) - forward((1, 0)))
    assert LinearPasses(costs, layers, (False, False)).cost((4, 1)).forward == forward((4, 1))


def test_exchanges_of_tokens_beside_launches_do_not_count_where_two_kinds_have_them() -> None:
    """What one kind leaves of the wait for launches may hide the tokens of the other."""
    facts = {"dense_layers": 0, "sliding_window": 16, "sliding_window_every": 2}
    machines = make.fleet(make.cluster("a", nodes=1, devices=2, spec=make.device()))
    wanted = request(machines, make.model(8, experts=2, experts_per_token=1, ffn_hidden=384, **facts), 8,
                     replace(PINNED, dp=2, pp=1, ep=2))  # fmt: skip
    layers, costs = stage_of(wanted)
    costs = replace(costs, config=replace(costs.config, overlap_expert_communication=True))
    alone = replace(costs, workload=layers.of(layers.only(0, 1), False))
    assert layer_seconds([costs], layers, 0)[:2] == alone.work(1, False, False)
    assert alone.passes(1, False, False) > alone.work(1, False, False)


def test_a_layer_takes_no_more_than_a_stage_of_it() -> None:
    layers, costs = stage_of(question())
    for kind in (0, 1):
        seconds = layer_seconds([costs], layers, kind)
        alone = LinearPasses(costs, layers, (False, False)).cost(layers.only(kind, 1))
        assert 0 < seconds[0] <= alone.forward and seconds[1] <= alone.backward
        assert KindSeconds.of(seconds, False) == KindSeconds(*seconds[:2], sum(seconds[:2]), sum(seconds[:2]))
        assert KindSeconds.of(seconds, True).waited == seconds[0]
