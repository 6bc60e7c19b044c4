"""Slices of weights: the parts of a rank's shard that ranks of a larger tensor-parallel degree hold.

In unlike pipelines a rank of tp 2 holds two of the four slices that the ranks of a tp 4 pipeline hold, one each, and sums the
gradient of each slice with another rank (`sim.plan.pipelines`)."""

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


def numel(weight: Tensor, cut: Cut, slices: int) -> int:
    """Number of values in a slice of a weight."""
    return weight.numel() if cut.dim is None else weight.numel() // slices


def values_of(weight: Tensor, cut: Cut, slices: int, index: int) -> Tensor:
    """The values of slice `index` of `slices`, in one dimension: in the order in which the rank that has only this slice keeps
    them."""
    views = _views(weight, cut, slices, index)
    return (views[0] if len(views) == 1 else torch.cat(views, cut.dim or 0)).reshape(-1)


def put(weight: Tensor, cut: Cut, slices: int, index: int, values: Tensor) -> None:
    """Write the values of slice `index` of `slices` (`values_of`) into a weight."""
    views, dim = _views(weight, cut, slices, index), cut.dim or 0
    shape = list(views[0].shape)
    shape[dim] = sum(view.shape[dim] for view in views)
    for view, part in zip(views, values.view(shape).split([view.shape[dim] for view in views], dim), strict=True):
        view.copy_(part)


def _views(weight: Tensor, cut: Cut, slices: int, index: int) -> list[Tensor]:
    """The parts of slice `index` of a weight, one of each of the weight's parts."""
    if cut.dim is None:
        return [weight]
    return [part.chunk(slices, cut.dim)[index] for part in weight.split(cut.sizes, cut.dim)]
