"""Weights beside adapters that are never trained: ZeRO stage 3 gathers them from shards, and reduces nothing."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch.distributed as dist
from torch import nn

from holmes_sim.torch_backend.communication import Work, all_gather


class FrozenWeights:
    """Such weights of a bucket, in one flat buffer."""

    def __init__(self, weights: list[nn.Parameter], shards: int, shard: int):
        size = sum(weight.numel() for weight in weights)
        first = weights[0].data
        self.flat = first.new_zeros(-(-size // shards) * shards)
        self.own = self.flat.chunk(shards)[shard]
        start = 0
        for weight in weights:
            view = self.flat[start : start + weight.numel()].view(weight.shape)
            view.copy_(weight.data)
            weight.data = view
            start += weight.numel()

    def gathering(self, groups: Sequence[dist.ProcessGroup]) -> list[Work]:
        """A function that all-gathers the weights of all shards, over one group: ranks with slices have no frozen weights."""
        (group,) = groups
        return [functools.partial(all_gather, self.flat, self.own.clone(), group)]
