"""Device types as in the Holmes fork of Megatron-LM: hosts on one RDMA fabric, and the pipeline stages on them.

The fork sorts ranks by the order of types and then by rank (megatron/training/hetero_context.py of zhejianglab/Holmes). Its
ranks equal those of the plan if the types are in pipeline order and each type has consecutive stages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from holmes_sim.launching import torch_launch
from sim.plan.plan import Plan


def of_clusters(plan: Plan) -> dict[str, str]:
    """Cluster -> its device type. Clusters on the same RDMA fabrics share one type, named after them."""
    fabrics = torch_launch.fabrics_of(plan)
    clusters_of: dict[tuple[str, ...], list[str]] = {}
    for name in dict.fromkeys(device.cluster for device in plan.placement):
        clusters_of.setdefault(tuple(fabrics[name]), []).append(name)
    return {name: "+".join(names) for names in clusters_of.values() for name in names}


def of_pipeline_ranks(plan: Plan) -> list[tuple[str, ...]]:
    """Device types of every pipeline rank."""
    labels = of_clusters(plan)
    ends = itertools.pairwise(plan.config.first_rank(pp_rank) for pp_rank in range(plan.config.pp + 1))
    of_rank = (plan.placement[first:past] for first, past in ends)
    return [tuple(dict.fromkeys(labels[device.cluster] for device in devices)) for devices in of_rank]


def runs(plan: Plan) -> list[tuple[str, int]]:
    """Device types in pipeline order, each with its number of consecutive pipeline ranks."""
    found: list[tuple[str, int]] = []
    for label, *_ in of_pipeline_ranks(plan):
        if found and found[-1][0] == label:
            found[-1] = (label, found[-1][1] + 1)
        else:
            found.append((label, 1))
    return found


def unsupported(plan: Plan) -> Iterator[str]:
    """Reasons why the pipeline cannot be expressed as consecutive stages per device type."""
    for pp_rank, found in enumerate(of_pipeline_ranks(plan)):
        if len(found) > 1:
            yield (
                f"pipeline rank {pp_rank} on {' and '.join(found)}: every device type has its own stages; "
                "each pipeline rank on one fabric (--strategy holmes)"
            )
            return
    order = [label for label, _ in runs(plan)]
    if len(order) > len(set(order)):
        yield (
            f"stages on {', '.join(order)}: the stages of a device type must be consecutive; "
            "a pipeline that visits every fabric once"
        )
