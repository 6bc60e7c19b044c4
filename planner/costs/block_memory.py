"""Memory of stages that recompute as few layers as fit (`sim.plan.parallel_config.BLOCK`), of a node class under a shape."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.costs.context import PlanningContext
from planner.costs.stage_memory import StageMemory
from planner.space.shape import Shape
from sim.hardware.cluster import Cluster


class BlockMemory:
    """Layers and microbatches that fit, and the fewest layers that a stage must recompute for it.

    A stage that recomputes r of its k layers needs what full recomputation needs, and for each of the k - r others the bytes
    that a layer keeps more without it. One that recomputes none does not need the layer at work beside those that it keeps, so
    it may fit where a stage that recomputes one layer does not."""

    def __init__(self, context: PlanningContext, cluster: Cluster, shape: Shape):
        self._layers = context.request.workload.model.layers
        self._none, self._full = (StageMemory(context, cluster, one) for one in shape.extremes)
        self._fewest: dict[tuple[str, tuple[tuple[int, int], ...], int], tuple[int, ...]] = {}

    def most_layers(self, role: str, in_flight: tuple[tuple[int, int], ...], pp: int = 0) -> int:
        """Most layers that fit, whatever is recomputed (`StageMemory.most_layers`)."""
        return max(self._none.most_layers(role, in_flight, pp), self._full.most_layers(role, in_flight, pp))

    def held(self, role: str, layers: int) -> float:
        """Microbatches whose activations fit, whatever is recomputed (`StageMemory.held`)."""
        return max(self._none.held(role, layers), self._full.held(role, layers))

    def most_kept(self, role: str, in_flight: tuple[tuple[int, int], ...], pp: int = 0) -> int:
        """Most layers that fit if none is recomputed."""
        return self._none.most_layers(role, in_flight, pp)

    def fewest(self, role: str, in_flight: tuple[tuple[int, int], ...], pp: int = 0) -> tuple[int, ...]:
        """Fewest recomputed layers of a stage of 0, 1, ... layers; all of them where the stage does not fit."""
        key = role, in_flight, pp
        if key not in self._fewest:
            kept = self._none.most_layers(role, in_flight, pp)
            if kept >= self._layers:
                return (0,) * (self._layers + 1)
            sizes = np.arange(kept + 1, self._layers + 1)
            least = np.max([sizes - self._most_beside(role, pair, pp, sizes) for pair in in_flight], axis=0, initial=1)
            self._fewest[key] = (*(0,) * (kept + 1), *np.minimum(least, sizes).astype(int).tolist())
        return self._fewest[key]

    def _most_beside(self, role: str, pair: tuple[int, int], pp: int, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Most layers of stages of these sizes that may keep their activations, if at least one other layer is recomputed."""
        (one, two), (kept_one, kept_two) = (memory.of_one_and_two(role, *pair, pp) for memory in (self._full, self._none))
        more = kept_two - kept_one - two + one
        if more <= 0:  # only weight gradients wait: recomputation frees nothing
            return sizes.astype(float)
        beside: NDArray[np.float64] = np.floor((self._full.room(role) - one - (sizes - 1) * (two - one)) / more + 1e-9)
        return beside
