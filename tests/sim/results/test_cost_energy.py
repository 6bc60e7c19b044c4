"""Money and energy of a step: literal sums over whole nodes, and the engine's busy seconds in the prediction."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine import engine
from sim.formats import planfile
from sim.hardware.cluster import Device, Trunk
from sim.results import cost_energy
from sim.results.report import predict, split
from sim.results.sums import seconds_by_rank
from tests import builders
from tests.builders import any_plan, device, fleet


def one_rank(**facts: object):
    """One rank on three nodes of two devices, 128 tokens a step; facts of the device are given."""
    machines = fleet(builders.cluster(nodes=3, devices=2, spec=device(**facts)))
    return builders.plan(machines, microbatches=2)


def test_a_node_is_rented_whole():
    plan = one_rank(price=2.0)
    assert plan.workload.tokens == 128
    assert cost_energy.usd_per_token(plan, 16.0) == 2 * 2.0 * 16.0 / 128 == 0.5


def test_devices_draw_their_watts_while_they_compute_and_idle_watts_else():
    """Of 2 x 16 device seconds 4 compute: 4 x 100 W + 28 x 20 W = 960 J."""
    plan = one_rank(watts=100.0, idle_watts=20.0)
    assert cost_energy.joules_per_token(plan, 16.0, {0: 4.0}) == 960 / 128 == 7.5


def test_without_idle_watts_a_quarter_is_guessed():
    """4 x 100 W + 28 x 25 W = 1100 J."""
    assert cost_energy.IDLE_SHARE == 0.25
    assert cost_energy.joules_per_token(one_rank(watts=100.0), 16.0, {0: 4.0}) == 1100 / 128


def test_without_price_or_watts_there_is_no_cost_or_energy():
    assert cost_energy.usd_per_token(one_rank(watts=100.0), 16.0) is None
    assert cost_energy.joules_per_token(one_rank(price=2.0), 16.0, {0: 4.0}) is None


def test_every_cluster_has_its_own_price_and_watts():
    left, right = (
        builders.cluster(name, nodes=2, devices=2, spec=device(name, price=price, watts=watts, idle_watts=1.0))
        for name, price, watts in (("a", 3.0, 10.0), ("b", 1.0, 30.0))
    )
    machines = fleet(left, right, trunks=(Trunk(("a", "b"), "infiniband", 1e9, 0.0),))
    placement = tuple(Device(cluster, 1, index) for cluster in "ab" for index in range(2))
    plan = builders.plan(machines, tp=2, dp=2, placement=placement)
    assert cost_energy.occupied(plan) == ((left, 2), (right, 2))
    assert cost_energy.usd_per_token(plan, 8.0) == (2 * 3.0 + 2 * 1.0) * 8.0 / 128
    busy = {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}
    assert cost_energy.joules_per_token(plan, 8.0, busy) == (3 * 10.0 + 13 * 1.0 + 7 * 30.0 + 9 * 1.0) / 128


def test_the_prediction_of_a_lone_device_is_its_watts_all_the_step():
    """A device without neighbours computes from begin to end."""
    machines = fleet(builders.cluster(spec=device(price=2.0, watts=100.0, idle_watts=20.0)))
    plan = builders.plan(machines, microbatches=2)
    prediction = predict(plan, engine.simulate(plan))
    assert prediction.usd_per_token == pytest.approx(2.0 * prediction.step_s / 128, rel=1e-12)
    assert prediction.joules_per_token == pytest.approx(100.0 * prediction.step_s / 128, rel=1e-12)


@given(data=st.data())
def test_every_second_of_every_device_is_paid_for_and_busy_or_idle(data):
    plan = data.draw(any_plan(ranks=16))
    specs = {c.name: replace(c.node.device, watts=100.0, idle_watts=20.0, price=2.0) for c in plan.fleet.clusters}
    clusters = (replace(c, node=replace(c.node, device=specs[c.name])) for c in plan.fleet.clusters)
    machines = fleet(*clusters, trunks=plan.fleet.trunks, communicator=plan.fleet.communicator)
    plan = replace(plan, topology=replace(plan.topology, fleet=machines))
    timeline = engine.simulate(plan)
    prediction = predict(plan, timeline)
    seconds = sum(count for _, count in cost_energy.occupied(plan)) * prediction.step_s
    computed = sum(len(group) * split(seconds_by_rank(timeline)[group[0]])[0] for group in timeline.alike)
    assert prediction.usd_per_token == pytest.approx(2.0 * seconds / plan.workload.tokens, rel=1e-9)
    joules = 20.0 * seconds + 80.0 * computed
    assert prediction.joules_per_token == pytest.approx(joules / plan.workload.tokens, rel=1e-9)
    assert computed <= seconds * (1 + 1e-9)


def test_a_plan_file_has_cost_and_energy():
    plan = one_rank(price=2.0, watts=100.0)
    predicted = replace(plan, prediction=predict(plan, engine.simulate(plan)))
    written = planfile.facts(predicted)["prediction"]
    assert written["usd_per_token"] == predicted.prediction.usd_per_token > 0
    assert written["joules_per_token"] == predicted.prediction.joules_per_token > 0
