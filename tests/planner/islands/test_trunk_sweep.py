"""Tokens per second by the bandwidth between islands: crossings by hand calculation, and curves that only rise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.islands.trunk_sweep import TrunkSweep, trunk_sweep, with_trunks
from planner.placement.simulation import step
from planner.request import Wishes
from sim.errors import NotModelled, OptionError
from sim.plan.islands import IslandsPlan
from sim.sync import Sync
from sim.workload.adapter import Adapter
from tests.planner.islands.fleets import request, slow_trunk, three_clusters

RATES = (1e6, 1e7, 1e8, 1e9, 1e10)
SYNCS = (Sync("every-step"), Sync("every-step", compression="int8"), Sync("diloco", 30), Sync("independent"))
WISHES = Wishes(tp=1, pp=1, dp=2, microbatch_size=1, schedule="1f1b", recompute="none", zero_stage=1)
"""Exact plans with these pins fit one site, so that the exact curve is flat."""


@pytest.fixture(scope="module")
def sweep() -> TrunkSweep:
    return trunk_sweep(request(slow_trunk(), WISHES), RATES, SYNCS)


def test_curves_only_rise(sweep):
    assert [row.tokens_per_s for row in sweep.exact] == [sweep.exact[0].tokens_per_s] * len(RATES)
    assert sweep.exact[0].islands in ((("east",),), (("west",),))
    for rows in sweep.rows.values():
        values = [row.tokens_per_s for row in rows]
        assert values == sorted(values)


def test_the_plans_of_the_islands_are_the_same_everywhere(sweep):
    plans = [row.plan for rows in sweep.rows.values() for row in rows]
    assert {plan.islands[0].config for plan in plans if isinstance(plan, IslandsPlan)} == {plans[0].islands[0].config}


def test_the_crossing_is_that_of_a_hand_calculation(sweep):
    """Two sites with half the batch each are as fast as one with all of it, of T tokens in t seconds, where the exchange of 4
    bytes a parameter over the trunk, of which Ethernet reaches 73.6 %, takes what the halves save: t - s - latencies."""
    plan = sweep.rows[Sync("every-step")][0].plan
    parameters, layers = plan.workload.model.parameters, plan.workload.model.layers
    saved = step(sweep.exact[0].plan) - step(plan.islands[0])
    ethernet = 30e-6 + 50e-6 + 1e-3  # overhead and latency of Ethernet, latency of the trunk
    by_hand = 4 * parameters / 0.736 / (saved - 2 * (layers + 2) * ethernet)
    found = {crossing.sync: crossing for crossing in sweep.crossings}
    assert found[Sync("every-step")].bandwidth == pytest.approx(by_hand, rel=0.01)
    assert found[Sync("every-step")].gains
    assert found[Sync("every-step", compression="int8")].bandwidth == pytest.approx(by_hand / 4, rel=0.05)
    assert found[Sync("diloco", 30)].bandwidth < by_hand / 29


def test_what_never_crosses_is_not_a_crossing(sweep):
    assert Sync("independent") not in {crossing.sync for crossing in sweep.crossings}


def test_only_trunks_between_islands_change():
    where = three_clusters()
    names = [cluster.name for cluster in where.fleet.clusters]
    joined = with_trunks(where, ((names[0], names[1]), (names[2],)), 1.0)
    for before, after in zip(where.fleet.trunks, joined.fleet.trunks, strict=True):
        assert after.bandwidth == (before.bandwidth if set(before.between) <= set(names[:2]) else 1.0)


def test_a_fleet_without_trunks():
    one = request(slow_trunk())
    with pytest.raises(OptionError, match="topology lab-slow-trunk has no link between clusters"):
        trunk_sweep(type(one)(one.topology, one.workload, one.wishes, 5.0, (("east", 2),)), RATES, SYNCS)
    with pytest.raises(OptionError, match="at least two bandwidths"):
        trunk_sweep(one, RATES[:1], SYNCS)


def test_powersgd_of_adapters_is_refused_before_anything_is_planned():
    one = request(slow_trunk())
    tuned = replace(one, workload=replace(one.workload, adapter=Adapter(4)))
    with pytest.raises(NotModelled, match="adapter with powersgd: it is modelled for matrices of the model, not of adapters"):
        trunk_sweep(tuned, RATES, [Sync("diloco", 4, compression="powersgd=2")], pytest.fail)
