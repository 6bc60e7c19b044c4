"""What the lab needs to know of a plan of any kind: the machines, where ranks are placed, and their groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from sim.disaggregation.plan import DisaggregatedPlan
from sim.disaggregation.set_groups import set_groups
from sim.hardware.cluster import Device, Fleet
from sim.hardware.transport import common_transport
from sim.plan.derived_groups import gradient_groups
from sim.plan.groups import Group
from sim.plan.islands import IslandsPlan
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan

LabPlan: TypeAlias = Plan | IslandsPlan | DisaggregatedPlan | PipelinesPlan
"""The kinds of plans that the lab runs."""
OUTER = "outer"
"""Kind of the groups of one rank of each island."""


@dataclass(frozen=True, slots=True)
class LabTraffic:
    """The placement of all ranks, and the groups that communicate; `is_tied`: end stages sum a tied embedding."""

    fleet: Fleet
    placement: tuple[Device, ...]
    groups: tuple[Group, ...]
    is_tied: bool


def traffic_of(plan: LabPlan) -> LabTraffic:
    """The traffic of a plan, or of all islands or pipelines and between them."""
    if isinstance(plan, DisaggregatedPlan):
        return LabTraffic(plan.fleet, plan.placement, set_groups(plan.stage), is_tied=False)
    tied = plan.workload.model.tied_embeddings
    if isinstance(plan, Plan):
        return LabTraffic(plan.fleet, plan.placement, (*plan.groups, *gradient_groups(plan)), tied)
    if isinstance(plan, PipelinesPlan):
        numbered = zip(plan.first_ranks, plan.pipelines, strict=True)
        own = (_from(first, group) for first, pipeline in numbered for group in pipeline.groups)
        between = (group for _, some in plan.gradient_groups() for group in some)
        return LabTraffic(plan.fleet, plan.placement, (*own, *between), tied)
    groups = [
        _from(first, group)
        for first, island in zip(plan.first_ranks, plan.islands, strict=True)
        for group in (*island.groups, *gradient_groups(island))
    ]
    placement = tuple(device for island in plan.islands for device in island.placement)
    return LabTraffic(plan.fleet, placement, (*groups, *_between(plan, placement)), tied)


def _from(first: int, group: Group) -> Group:
    """A group whose ranks are numbered from `first` on."""
    return replace(group, ranks=tuple(first + rank for rank in group.ranks))


def _between(plan: IslandsPlan, placement: tuple[Device, ...]) -> tuple[Group, ...]:
    """A group of the ranks with the same number of all islands, for each number that all islands have."""
    if not plan.sync.exchanges:
        return ()
    nic, transport = common_transport(plan.fleet, placement)
    numbers = range(min(island.config.world_size for island in plan.islands))
    ranks = (tuple(first + number for first in plan.first_ranks) for number in numbers)
    return tuple(Group(OUTER, some, nic, transport, "ring") for some in ranks)
