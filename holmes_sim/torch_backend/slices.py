"""Slices of weights: the parts of a rank's shard that ranks of a larger tensor-parallel degree hold.

In unlike pipelines a rank of tp 2 holds two of the four slices that the ranks of a tp 4 pipeline hold, one each, and sums the
gradient of each slice with another rank (`sim.plan.pipelines`). Of routed experts, a rank of ep 1 holds both parts that the
ranks of an ep 2 pipeline hold, each of them in slices."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Cut(NamedTuple):
    """How tensor-parallel ranks shard a weight: along dimension `dim`, where a rank has a shard of each of several parts side
    by side (queries, keys and values; gate and up), of `sizes`. dim None: not at all."""

    dim: int | None
    sizes: tuple[int, ...] = ()


WHOLE = Cut(None)
"""A weight that every tensor-parallel rank has as a whole; so has every slice."""


class Grid(NamedTuple):
    """The slices of a rank's weights: `parts` of its routed experts, along their first dimension (1 of all other weights), and
    `slices` of each part. They are numbered part by part."""

    parts: int = 1
    slices: int = 1

    @property
    def number(self) -> int:
        """Number of slices in all parts."""
        return self.parts * self.slices

    def is_first(self, index: int) -> bool:
        """Whether a slice is the first one of its part."""
        return index % self.slices == 0


def numel(weight: Tensor, cut: Cut, grid: Grid) -> int:
    """Number of values in a slice of a weight."""
    return weight.numel() // (grid.parts if cut.dim is None else grid.number)


def values_of(weight: Tensor, cut: Cut, grid: Grid, index: int) -> Tensor:
    """The values of slice `index`, in one dimension: in the order in which the rank that has only this slice keeps them."""
    views = _views(weight, cut, grid, index)
    return (views[0] if len(views) == 1 else torch.cat(views, cut.dim or 0)).reshape(-1)


def put(weight: Tensor, cut: Cut, grid: Grid, index: int, values: Tensor) -> None:
    """Write the values of slice `index` (`values_of`) into a weight."""
    views, dim = _views(weight, cut, grid, index), cut.dim or 0
    shape = list(views[0].shape)
    shape[dim] = sum(view.shape[dim] for view in views)
    for view, part in zip(views, values.view(shape).split([view.shape[dim] for view in views], dim), strict=True):
        view.copy_(part)


def _views(weight: Tensor, cut: Cut, grid: Grid, index: int) -> list[Tensor]:
    """Slice `index` of a weight: one view of each of the shards that lie side by side in it."""
    part, one = divmod(index, grid.slices)
    weight = weight.chunk(grid.parts)[part] if grid.parts > 1 else weight
    if cut.dim is None:
        return [weight]
    return [shard.chunk(grid.slices, cut.dim)[one] for shard in weight.split(cut.sizes, cut.dim)]
