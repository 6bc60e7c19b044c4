"""Device types as in the Holmes fork of Megatron-LM: hosts on one RDMA fabric, and the pipeline stages on them.

The fork sorts ranks by the order of types and then by rank (megatron/training/hetero_context.py of zhejianglab/Holmes). Its
ranks equal those of the plan if the types are in pipeline order and each type has consecutive stages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from holmes_sim.launching import torch_launch
from planner.target import Devices
from sim.hardware.cluster import Device, Fleet
from sim.plan.plan import Plan


def of_clusters(plan: Plan) -> dict[str, str]:
    """Cluster -> its device type."""
    return _labels(plan.fleet, plan.placement)


def _labels(fleet: Fleet, devices: Iterable[Device]) -> dict[str, str]:
    """Cluster -> its device type, of the clusters of devices. Clusters on the same RDMA fabrics share one type, named after
    them."""
    fabrics = torch_launch.fabrics_of(fleet)
    clusters_of: dict[tuple[str, ...], list[str]] = {}
    for name in dict.fromkeys(device.cluster for device in devices):
        clusters_of.setdefault(tuple(fabrics[name]), []).append(name)
    return {name: "+".join(names) for names in clusters_of.values() for name in names}


def of_pipeline_ranks(plan: Plan) -> list[tuple[str, ...]]:
    """Device types of every pipeline rank."""
    ends = itertools.pairwise(plan.config.first_rank(pp_rank) for pp_rank in range(plan.config.pp + 1))
    return _types(of_clusters(plan), (plan.placement[first:past] for first, past in ends))


def _types(labels: Mapping[str, str], stages: Iterable[Devices]) -> list[tuple[str, ...]]:
    return [tuple(dict.fromkeys(labels[device.cluster] for device in devices)) for devices in stages]


def runs(plan: Plan) -> list[tuple[str, int]]:
    """Device types in pipeline order, each with its number of consecutive pipeline ranks."""
    return [(label, len(list(alike))) for label, alike in itertools.groupby(found[0] for found in of_pipeline_ranks(plan))]


def unsupported(plan: Plan) -> Iterator[str]:
    """Reasons why the pipeline cannot be expressed as consecutive stages per device type."""
    yield from _unsupported(of_pipeline_ranks(plan))


def of_pipelines(fleet: Fleet, pipelines: Iterable[Devices], every: Devices) -> Iterator[str]:
    """`unsupported`, of pipelines that are a device of each stage, and of devices of all nodes."""
    yield from _unsupported(_types(_labels(fleet, every), zip(*pipelines, strict=True)))


def _unsupported(stages: list[tuple[str, ...]]) -> Iterator[str]:
    for pp_rank, found in enumerate(stages):
        if len(found) > 1:
            yield (
                f"pipeline rank {pp_rank} on {' and '.join(found)}: every device type has its own stages; "
                "each pipeline rank on one fabric (--strategy holmes)"
            )
            return
    order = [label for label, _ in itertools.groupby(found[0] for found in stages)]
    if len(order) > len(set(order)):
        yield (
            f"stages on {', '.join(order)}: the stages of a device type must be consecutive; "
            "a pipeline that visits every fabric once"
        )
