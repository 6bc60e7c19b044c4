"""What hosts could keep so that a plan exists, and why they cannot keep what was asked for."""

from __future__ import annotations

from dataclasses import replace

from planner.placement.simulation import simulate_plan
from planner.request import Request
from planner.search.fitting import fitting
from sim.kernels import offload
from sim.plan.offloading import ACTIVATIONS, CHOICES, OPTIMIZER
from sim.plan.parallel_config import BLOCK
from sim.units import Seconds, size_text

HELPFUL = (OPTIMIZER, ACTIVATIONS, f"{OPTIMIZER}+{ACTIVATIONS}")
"""Values of --offload that are tried, in order: copies of optimizer state take time once a step, those of activations with each
microbatch."""


def too_small(request: Request) -> str:
    """Why hosts cannot keep what a request offloads, if only their memory is too small; else empty."""
    fleet, offloaded = request.topology.fleet, request.wishes.offloaded
    nodes = [replace(cluster, node=replace(cluster.node, host_memory=None)) for cluster in fleet.clusters]
    topology = replace(request.topology, fleet=replace(fleet, clusters=tuple(nodes)))
    other = fitting(replace(request, topology=topology)) if offloaded else None
    over = offload.over_host_memory(replace(other, topology=request.topology)) if other is not None else None
    if over is None:
        return ""
    cluster, nbytes = over
    names = ((OPTIMIZER, "the optimizer state"), (ACTIVATIONS, "the activations"))
    kept = " and ".join(name for word, name in names if word in offloaded)
    verb = "take" if ACTIVATIONS in offloaded else "takes"
    return (
        f"host memory: {kept} of {request.workload.model.name} {verb} {size_text(nbytes)} on a host of cluster "
        f"{cluster.name}, whose host_memory is {size_text(cluster.node.host_memory or 0.0)}, of which a share of "
        f"{request.topology.memory_headroom:.3g} stays free"
    )


def choices(request: Request) -> tuple[str, ...]:
    """The values of `HELPFUL` that the other pins allow (`planner.request.Wishes`)."""
    blocks = request.wishes.recompute == BLOCK
    return tuple(name for name in HELPFUL if not (blocks and ACTIVATIONS in CHOICES[name]))


def helpful(request: Request) -> tuple[str, Seconds] | None:
    """The first value of `choices` with which a plan exists, and the seconds of a step of one that fits, which the search may
    improve; None where the request has a value of its own, or none helps."""
    if request.wishes.offload is not None:
        return None
    for name in choices(request):
        plan = fitting(replace(request, wishes=request.wishes.with_pin("offload", name)))
        if plan is not None:
            predicted = simulate_plan(plan).prediction
            assert predicted is not None
            return name, predicted.step_s
    return None
