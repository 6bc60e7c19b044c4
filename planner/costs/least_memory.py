"""The least memory that a stage needs under any of several shapes, and what it must recompute then."""

from __future__ import annotations

from collections.abc import Sequence

from planner.costs.block_memory import BlockMemory
from planner.costs.stage_memory import StageMemory


class LeastMemory:
    """The most layers that fit under some of several memories, such as those of the ZeRO stages of a family of shapes.

    ZeRO 3 does not always need least: the whole weights of the layer at work and of those gathered ahead come on top of its
    shards, which matters for few large layers."""

    def __init__(self, every: Sequence[StageMemory | BlockMemory | LeastMemory]):
        self._every = tuple(every)
        self._fewest: dict[tuple[str, tuple[tuple[int, int], ...], int], tuple[int, ...]] = {}

    def most_layers(self, role: str, in_flight: tuple[tuple[int, int], ...], pp: int = 0) -> int:
        """The most layers under any of them (`StageMemory.most_layers`)."""
        return max(memory.most_layers(role, in_flight, pp) for memory in self._every)

    def most_kept(self, role: str, in_flight: tuple[tuple[int, int], ...], pp: int = 0) -> int:
        """The most layers under any of them without recomputing any (`StageMemory.most_kept`)."""
        return max(memory.most_kept(role, in_flight, pp) for memory in self._every)

    def held(self, role: str, layers: int) -> float:
        """The most microbatches whose activations fit under any of them (`StageMemory.held`)."""
        return max(memory.held(role, layers) for memory in self._every)

    def fewest(self, role: str, in_flight: tuple[tuple[int, int], ...], pp: int = 0) -> tuple[int, ...]:
        """The fewest recomputed layers under any of them, by layers; empty where there is no choice (`BlockMemory.fewest`)."""
        key = role, in_flight, pp
        if key not in self._fewest:
            every = (memory.fewest(role, in_flight, pp) for memory in self._every)
            self._fewest[key] = tuple(map(min, zip(*every, strict=True)))
        return self._fewest[key]
