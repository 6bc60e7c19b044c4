"""A plan on a changed topology that still has all its devices: the same degrees, stages and devices."""

from __future__ import annotations

from dataclasses import replace

from planner.placement import simulation
from sim.errors import PlanError, TopologyError
from sim.hardware.cluster import Cluster
from sim.hardware.topology import Topology
from sim.plan.groups import with_transport
from sim.plan.plan import Plan
from sim.workload.workload import Workload


def rebased(plan: Plan, topology: Topology, workload: Workload) -> Plan | None:
    """The plan on another topology with another workload, simulated; None where it does not exist there or does not fit memory.

    Every group uses the NIC that the new topology gives it, and keeps its collective. The microbatches of each replica grow or
    shrink with the batch; None where they are not whole.

    More nodes and more memory do not change the step, which is not simulated again. Faster devices, NICs and links shorten each
    computation and message, but can lengthen the step: messages that start earlier may meet others on a link (a timing anomaly;
    R. L. Graham, Bounds on Multiprocessing Timing Anomalies, SIAM Journal on Applied Mathematics 17(2), 1969)."""
    shares = [divmod(m * workload.global_batch_size, plan.workload.global_batch_size) for m in plan.config.num_microbatches]
    if any(rest for _, rest in shares):
        return None
    config = replace(plan.config, num_microbatches=tuple(count for count, _ in shares))
    try:
        ranks = ((group.kind, group.ranks, group.collective) for group in plan.groups)
        groups = tuple(with_transport(topology.fleet, plan.placement, ranks))
        placed = Plan(topology, workload, config, plan.stages, plan.placement, groups, plan.made_by)
        if not simulation.fits(placed):
            return None
        same = plan.prediction if _is_as_fast(plan, placed) else None
        return placed.annotated(prediction=same) if same else simulation.simulate_plan(placed)
    except (PlanError, TopologyError):  # a device is gone, nothing joins a group, or a device lacks the precision
        return None


def _is_as_fast(old: Plan, new: Plan) -> bool:
    """Whether the topologies of a plan and its copy differ in numbers of nodes, memory, names and prices only; of links between
    clusters, too, if the plan is on one cluster."""
    before, after = old.topology, new.topology
    used = {device.cluster for device in new.placement}
    trunks = len(used) == 1 or before.fleet.trunks == after.fleet.trunks
    kept = trunks and (before.stack, old.workload, old.groups) == (after.stack, new.workload, new.groups)
    return kept and all(_speed(before.fleet.cluster(name)) == _speed(after.fleet.cluster(name)) for name in used)


def _speed(cluster: Cluster) -> Cluster:
    """The cluster as one node without memory."""
    device = replace(cluster.node.device, memory=0.0, price=None)
    return replace(cluster, nodes=1, hosts=(), node=replace(cluster.node, device=device))
