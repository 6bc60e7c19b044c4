"""The weights that each device of a plan holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.hardware.cluster import Device
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan, Stage


@dataclass(frozen=True, slots=True)
class Holding:
    """The weights on a device: its `part` (degrees and ranks of tp, etp and ep) of layers, embedding (`first`) and logits
    (`last`)."""

    part: tuple[int, ...]
    layers: frozenset[int]
    first: bool
    last: bool

    def keeps(self, before: Holding | None) -> frozenset[int]:
        """Layers whose part the device already has."""
        return self.layers & before.layers if before is not None and before.part == self.part else frozenset()

    def lacks(self, before: Holding | None) -> tuple[int, bool, bool]:
        """(number of layers, whether the embedding, whether the logits) that the device does not have yet."""
        there = before if before is not None and before.part == self.part else None
        first, last = self.first and not (there and there.first), self.last and not (there and there.last)
        return len(self.layers - self.keeps(before)), first, last


def holdings(plan: Plan) -> dict[Device, Holding]:
    """The weights on every device of a plan; replicas hold the same."""
    return holdings_of(plan.config, plan.stages, plan.placement)


def holdings_of(config: ParallelConfig, stages: Sequence[Stage], placement: Sequence[Device | None]) -> dict[Device, Holding]:
    """The weights on the device of every rank; a rank without a device (None) has none."""
    head = next((index for index, stage in enumerate(stages) if stage.head), config.num_stages - 1)
    found = {}
    for rank, device in enumerate(placement):
        if device is None:
            continue
        tp, _, pp_rank = config.coordinates(rank)
        held = schedules.stages_of(config.schedule, pp_rank, config.pp, config.num_stages)
        layers = frozenset(n for one in held for n in range(stages[one].first, stages[one].past_last))
        own = config.of_pp_rank(pp_rank)
        experts = (rank - config.first_rank(pp_rank)) % own.expert_mesh if own.splits_experts else 0
        part = own.tp, tp, own.expert_tp, own.ep, experts
        found[device] = Holding(part, layers, 0 in held, head in held)
    return found
