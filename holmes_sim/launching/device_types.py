"""Device types, as Holmes' fork has them: hosts of one RDMA fabric, and the stages that are theirs.

It sorts ranks by the order of the types and then by rank (megatron/training/hetero_context.py of zhejianglab/Holmes): the ranks
are the plan's where the types stand in the order of the pipeline, each on places that follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import torch_launch
from sim.plan.plan import Plan


def of_clusters(plan: Plan) -> dict[str, str]:
    """Cluster -> its device type: clusters of the same RDMA fabrics are of one, named after them."""
    fabrics = torch_launch.fabrics_of(plan)
    alike: dict[tuple[str, ...], list[str]] = {}
    for name in dict.fromkeys(device.cluster for device in plan.placement):
        alike.setdefault(tuple(fabrics[name]), []).append(name)
    return {name: "+".join(names) for names in alike.values() for name in names}


def of_places(plan: Plan) -> list[tuple[str, ...]]:
    """Device types of every place of the pipeline."""
    labels = of_clusters(plan)
    width = plan.config.tp * plan.config.dp_cp
    places = (plan.placement[first : first + width] for first in range(0, plan.config.world_size, width))
    return [tuple(dict.fromkeys(labels[device.cluster] for device in devices)) for devices in places]


def runs(plan: Plan) -> list[tuple[str, int]]:
    """Device types in the order of the pipeline, and how many places follow each other on each."""
    found: list[tuple[str, int]] = []
    for label, *_ in of_places(plan):
        if found and found[-1][0] == label:
            found[-1] = (label, found[-1][1] + 1)
        else:
            found.append((label, 1))
    return found


def against(plan: Plan) -> Iterator[str]:
    """Why the places of a pipeline are no runs of device types, if so."""
    for place, found in enumerate(of_places(plan)):
        if len(found) > 1:
            yield (
                f"place {place} of the pipeline on {' and '.join(found)}: it gives every device type its own stages; "
                "each place on one fabric (--strategy holmes)"
            )
            return
    order = [label for label, _ in runs(plan)]
    if len(order) > len(set(order)):
        yield (
            f"stages on {', '.join(order)}: it lets the stages of a device type follow each other; "
            "a pipeline that visits every fabric once"
        )
