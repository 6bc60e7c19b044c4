"""The place of a rank in a plan with two sets of ranks, and its process groups. This module does not need torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sim.disaggregation import shares
from sim.disaggregation.set_groups import group_members, set_groups
from sim.disaggregation.stage import DisaggregatedStage
from sim.plan.groups import Group


@dataclass(frozen=True, slots=True)
class SetRank:
    """A rank of a plan: attention ranks come first, then expert ranks, those of each group side by side."""

    stage: DisaggregatedStage
    rank: int

    @property
    def set_number(self) -> int:
        """0 for an attention rank, 1 for an expert rank."""
        return int(self.rank >= len(self.stage.attention))

    @property
    def set_name(self) -> str:
        """The stream of compute that the rank runs."""
        return ("attention", "experts")[self.set_number]

    @property
    def group(self) -> int:
        """Number of the group of ranks."""
        stage = self.stage
        own = self.rank - self.set_number * len(stage.attention)
        return own // (stage.expert_ranks if self.set_number else stage.attention_ranks)

    @property
    def in_group(self) -> int:
        """Number in the group, attention ranks first."""
        return self.members(self.group).index(self.rank)

    def members(self, group: int) -> tuple[int, ...]:
        """The ranks of a group, attention ranks first."""
        return group_members(self.stage)[group]

    def all_experts(self, layer: int) -> tuple[range, ...]:
        """The routed experts of a layer (1 to L) that each rank of the group holds."""
        return shares.held_experts(self.stage, self.stage.kept[layer - 1])

    def experts(self, layer: int) -> range:
        """Those that the rank holds."""
        return self.all_experts(layer)[self.in_group]

    def groups(self) -> Iterator[Group]:
        """The groups of the rank."""
        return (group for group in set_groups(self.stage) if self.rank in group.ranks)
