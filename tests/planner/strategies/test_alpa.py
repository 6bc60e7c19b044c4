"""The strategy alpa: its plans follow the speed of the clusters."""

from __future__ import annotations

from planner.costs.context import PlanningContext
from planner.request import Wishes
from planner.strategies import alpa
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import request


def test_layers_follow_the_speed_of_clusters():
    """Two devices, one three times as fast, nine layers whose ends cost next to nothing: about three quarters on it."""
    fast, slow = (make.device(name, speed, 1e13) for name, speed in (("fast", 3e12), ("slow", 1e12)))
    clusters = [make.cluster(name, 1, 1, (make.nic("ethernet", 1e12),), spec) for name, spec in (("f", fast), ("s", slow))]
    machines = make.fleet(*clusters, trunks=(Trunk(("f", "s"), "ethernet", 1e12, 0.0),))
    question = request(machines, make.model(9, 768), 64, Wishes(tp=1, dp=1, pp=2, recompute="none"), seq_len=256)
    plan = alpa.plan(question, PlanningContext(question))
    layers = {plan.placement[pp_rank].cluster: stage.layers for pp_rank, stage in enumerate(plan.stages)}
    assert layers == {"f": 7, "s": 2}
