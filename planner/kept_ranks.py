"""Ranks that a person wants to keep where they are: the weights that a plan has on each device."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sim.hardware.cluster import Device
from sim.plan.holdings import Holding, holdings, holdings_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan, Stage


@dataclass(frozen=True)
class KeptRanks:
    """The ranks of a plan on a fleet of today: its configuration, stages, and the device of each rank, None where that is gone.

    name: the plan in words, such as its file; model: name of the model whose layers it divides."""

    name: str
    model: str
    config: ParallelConfig
    stages: tuple[Stage, ...]
    placement: tuple[Device | None, ...]

    def __str__(self) -> str:
        return f"ranks kept as in {self.name}"

    @functools.cached_property
    def _held(self) -> Mapping[Device, Holding]:
        return holdings_of(self.config, self.stages, self.placement)

    def fault(self, plan: Plan) -> str:
        """How many ranks of a plan lack weights on their device, as text; empty where none does."""
        moving = [device for device, needs in holdings(plan).items() if any(needs.lacks(self._held.get(device)))]
        if not moving:
            return ""
        return f"{len(moving)} of {len(plan.placement)} ranks that move: {moving[0]} lacks their weights in {self.name}"

    def _blocks(self, stage: int) -> dict[int, tuple[Device, ...]]:
        """Devices of every block of `expert_replicas` of a stage that lost no device, by its number: replicas that divide
        experts among them stay or go together."""
        config, together, found = self.config, self.config.expert_replicas, dict[int, tuple[Device, ...]]()
        for replica in range(0, config.dp, together):
            rows = config.dp_cp_of(stage) // config.dp
            first = config.rank(0, replica * rows, stage)
            devices = self.placement[first : first + together * rows * config.tp_of(stage)]
            held = tuple(device for device in devices if device is not None)
            if len(held) == len(devices):
                found[replica // together] = held
        return found

    def placements(self) -> Iterator[tuple[int, tuple[Device, ...]]]:
        """(number of replicas, device of each rank), most replicas first: of each number those that every stage has first, then
        those that no stage lost before others, if these are not the same."""
        every = [self._blocks(stage) for stage in range(self.config.pp)]
        whole = set(every[0]).intersection(*every)
        for many in range(min(map(len, every)), 0, -1):
            first = [sorted(blocks)[:many] for blocks in every]
            together = [sorted(sorted(blocks, key=lambda one: (one not in whole, one))[:many]) for blocks in every]
            for chosen in (first, together) if together != first else (first,):
                pairs = zip(every, chosen, strict=True)
                devices = (device for blocks, some in pairs for one in some for device in blocks[one])
                yield many * self.config.expert_replicas, tuple(devices)

    def with_replicas(self, dp: int, microbatches: int) -> ParallelConfig:
        """The configuration with dp replicas, which share so many microbatches; ZeRO shards over all ranks of a stage where the
        size of today does not divide them. Raises NotDefined, PlanError."""
        each, more = divmod(microbatches, dp)
        config, size = self.config, self.config.zero_shard_size
        return replace(
            config,
            dp=dp,
            stage_dp=tuple(dp * config.split_of(stage) for stage in range(config.pp)) if config.stage_dp else (),
            num_microbatches=tuple(each + (replica < more) for replica in range(dp)),
            zero_shard_size=size if size is not None and dp * config.cp % size == 0 else None,
        )
