"""Where plans that keep the optimizer state in host memory are tried beside the proof, without a pin."""

from __future__ import annotations

import functools

from planner.request import Request
from planner.target import Target
from sim.plan.offloading import OPTIMIZER
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload


def may_offload(request: Request) -> bool:
    """Whether such plans are tried: where nothing is pinned or required of offload, and the topology gives memory and memory
    bandwidth of every host, without which their step would rest on a guess. Not with adapters, whose state is small."""
    free = request.wishes.offload is None and request.limits.allows("offload", OPTIMIZER)
    if not free or request.workload.adapter is not None or not request.workload.model.is_uniform:
        return False
    nodes = [cluster.node for cluster in request.clusters()]
    return all(node.host_memory is not None and node.device.host_memory_bandwidth is not None for node in nodes)


def may_differ(request: Request) -> bool:
    """Whether stages may differ in what their hosts keep: the target can launch such plans, or there is none."""
    return request.target is None or _takes(request.target, request.workload)


@functools.lru_cache(maxsize=1024)
def _takes(target: Target, workload: Workload) -> bool:
    config = ParallelConfig(
        pp=2, num_microbatches=(2,), schedule="1f1b", offload=(OPTIMIZER,), stage_offload=("none", OPTIMIZER)
    )
    return not any(text.startswith("stage_offload") for text in target.unsupported_layout(config, workload))
