"""The devices of pipelines with mixed stages, and whether the launch target of a request takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.request import Request
from planner.space.device_slots import Run, StageSlots, replica_groups
from planner.space.shapes import slot
from sim.hardware.cluster import Device


def takes_pipelines(request: Request, tp: int, stages: Sequence[StageSlots]) -> bool:
    """Whether the target of a request, if it has one, can have pipelines on these stages, whose slots have tp devices each."""
    limits = request.target.unsupported_pipelines if request.target is not None else None
    if limits is None:
        return True
    listed = tuple(pipelines(stages, tp))
    every = tuple(device for devices in listed for device in devices)
    return next(limits(request.topology.fleet, listed, every), None) is None


def pipelines(stages: Sequence[StageSlots], tp: int) -> Iterator[tuple[Device, ...]]:
    """A device of each stage, of all pipelines that differ in their clusters, or in whether they are inside one node.

    Replicas that follow one another on the same clusters have equal distances between stages: where these are a node or more,
    none of them is inside one node, and the first stands for all."""
    for group in replica_groups(stages):
        firsts = [run.first for run in group]
        far = len(firsts) == 1 or max(firsts) - min(firsts) >= group[0].cluster.node.count // tp
        for index in range(1 if far or _are_several(group) else group[0].count):
            yield tuple(slot(run.cluster, tp, run.first + index)[0] for run in group)


def _are_several(group: Sequence[Run]) -> bool:
    return len({run.cluster.name for run in group}) > 1
