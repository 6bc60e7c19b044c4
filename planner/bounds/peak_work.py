"""A lower bound on every plan of a request, in no time: all devices compute the matrix products of a step at their peak."""

from __future__ import annotations

from planner.bounds.pipeline_modes import configuration
from planner.request import Request
from sim.units import Seconds


def peak_seconds(request: Request) -> Seconds:
    """Least seconds in which all devices compute the products of the layers, forward and backward, of the whole batch.

    No kernel is faster than the dense peak of its device (`sim.kernels.formulas`), and no plan computes fewer products. 0 where
    this may not be so: measured layers have seconds of their own, and experts with a capacity may drop tokens."""
    devices = [(cluster.node.device, cluster.devices) for cluster in request.clusters()]
    if any(device.profile is not None for device, _ in devices) or configuration(request, 1, 1, 1).load < 1:
        return 0.0
    rate = sum(many * device.peak_of(request.workload.precision) for device, many in devices)
    return request.workload.product_flops / rate
