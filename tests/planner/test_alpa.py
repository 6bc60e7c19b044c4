"""The strategy alpa: its plans follow the speed of the clusters."""

from __future__ import annotations

from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from planner.strategies import alpa
from sim.hardware.cluster import Trunk
from sim.hardware.topology import Topology
from sim.workload.workload import Workload


def test_layers_follow_the_speed_of_clusters(make_cluster, make_device, make_fleet, make_model, make_nic):
    """Two devices, one three times as fast, nine layers whose ends cost next to nothing: about three quarters on it."""
    fast, slow = (make_device(name, speed, 1e13) for name, speed in (("fast", 3e12), ("slow", 1e12)))
    clusters = [make_cluster(name, 1, 1, (make_nic("ethernet", 1e12),), spec) for name, spec in (("f", fast), ("s", slow))]
    machines = make_fleet(*clusters, trunks=(Trunk(("f", "s"), "ethernet", 1e12, 0.0),))
    workload = Workload(make_model(9, 768), 64, 256, "bf16")
    question = Request(Topology("tiny", "", machines, workload, "{}"), workload, Wishes(tp=1, dp=1, pp=2, recompute="none"))
    plan = alpa.plan(question, PlanningContext(question))
    layers = {plan.placement[place].cluster: stage.layers for place, stage in enumerate(plan.stages)}
    assert layers == {"f": 7, "s": 2}
