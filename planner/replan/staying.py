"""The old plan after losses, without moving weights: the same stages on their remaining devices, with fewer replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from planner.placement import simulation
from sim.errors import NoRoute, NotDefined
from sim.formats.lost_nodes import Place
from sim.hardware.cluster import Device
from sim.hardware.topology import Topology
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan


def stayed(before: Plan, left: Topology, came: Mapping[Place, Place]) -> Plan | None:
    """The old plan with the most replicas that every stage still has, simulated; None where no such plan exists or fits.

    A stage keeps its first replicas; the devices of other replicas are idle. Replicas that divide experts among them stay or
    go together."""
    replicas = [list(_surviving(before, stage, {old: new for new, old in came.items()})) for stage in range(before.config.pp)]
    for blocks in range(min(map(len, replicas)), 0, -1):
        placement = [device for stage in replicas for devices in stage[:blocks] for device in devices]
        try:
            plan = _with_replicas(before, left, blocks * before.config.expert_replicas, placement)
        except (NoRoute, NotDefined):
            continue
        if simulation.fits(plan):
            return simulation.simulate_plan(plan)
    return None


def _surviving(before: Plan, stage: int, goes: Mapping[Place, Place]) -> Iterator[tuple[Device, ...]]:
    """Devices of every block of `expert_replicas` of a stage that lost no device, under the names of the remaining fleet."""
    config, together = before.config, before.config.expert_replicas
    for replica in range(0, config.dp, together):
        rows = config.dp_cp_of(stage) // config.dp
        first = config.rank(0, replica * rows, stage)
        devices = before.placement[first : first + together * rows * config.tp_of(stage)]
        if all((device.cluster, device.node) in goes for device in devices):
            yield tuple(Device(*goes[device.cluster, device.node], device.index) for device in devices)


def _with_replicas(before: Plan, left: Topology, dp: int, placement: list[Device]) -> Plan:
    """The plan with dp replicas on `placement`. Raises NoRoute, NotDefined."""
    each, more = divmod(sum(before.config.num_microbatches), dp)
    microbatches = tuple(each + (replica < more) for replica in range(dp))
    config = before.config
    rows = tuple(dp * config.split_of(stage) for stage in range(config.pp)) if config.stage_dp else ()
    config = replace(config, dp=dp, stage_dp=rows, num_microbatches=microbatches, zero_shard_size=_shards(config, dp))
    chosen = {(group.kind, before.config.coordinates(group.ranks[0])[2]): group.collective for group in before.groups}
    groups = tuple(
        replace(group, collective=chosen.get((group.kind, config.coordinates(group.ranks[0])[2]), group.collective))
        for group in groups_of(left.fleet, config, tuple(placement))
    )
    return Plan(left, before.workload, config, before.stages, tuple(placement), groups, before.made_by)


def _shards(config: ParallelConfig, dp: int) -> int | None:
    size = config.zero_shard_size
    return size if size is not None and dp * config.cp % size == 0 else None
