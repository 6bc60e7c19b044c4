"""How the values of islands become one: a mean that adds up on its way around a ring, or one of gathered values.

A reducer works on the vectors of all links of a rank (`holmes_sim.torch_backend.islands.links`). `fragment` tells apart what it
keeps for each part of the model that is exchanged for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend import aggregators
from holmes_sim.torch_backend.compressors import Codec
from holmes_sim.torch_backend.islands.collectives import gather, ring_sum
from holmes_sim.torch_backend.islands.powersgd import LowRankSum


class Reducer(Protocol):
    """Interface of the classes of this module."""

    def reduce(self, values: list[Tensor], fragment: int) -> list[Tensor]:
        """The values of all islands as one, for each link, from fp32 values in host memory."""
        ...


class RingMean:
    """The mean weighted by `weight`, this island's, as a sum around a ring."""

    def __init__(self, groups: list[dist.ProcessGroup], codec: Codec, weight: float):
        self.groups, self.codec, self.weight = groups, codec, weight

    def reduce(self, values: list[Tensor], fragment: int) -> list[Tensor]:
        """The weighted mean."""
        return [ring_sum(one * self.weight, self.codec, group) for one, group in zip(values, self.groups, strict=True)]


class Gathered:
    """The weighted mean, or the result of another aggregation, of the gathered values of all islands.

    `feeds_back`: what the code loses is added to the next values of the same fragment (error feedback). `total` sums a tensor
    over the ranks of this island."""

    def __init__(
        self,
        groups: list[dist.ProcessGroup],
        codec: Codec,
        weight: float,
        feeds_back: bool = False,
        aggregation: str = "mean",
        total: Callable[[Tensor], Tensor] = lambda value: value,
    ):
        self.groups, self.codec, self.feeds_back = groups, codec, feeds_back
        self.weight = weight if aggregation == "mean" else 1.0
        self.aggregation, self.total = aggregation, total
        self.lost: dict[tuple[int, int], Tensor] = {}

    def reduce(self, values: list[Tensor], fragment: int) -> list[Tensor]:
        """The aggregate of the values of all islands."""
        gathered = []
        for link, (one, group) in enumerate(zip(values, self.groups, strict=True)):
            one = one * self.weight
            if self.feeds_back and (fragment, link) in self.lost:
                one += self.lost[fragment, link]
            every = gather(one, self.codec, group)
            if self.feeds_back:
                self.lost[fragment, link] = one - every[group.rank()]
            gathered.append(torch.stack(every))
        if self.aggregation == "mean":
            return [every.sum(0) for every in gathered]
        return aggregators.get(self.aggregation).aggregate(gathered, self.total)


class LowRankMean:
    """The weighted mean by PowerSGD. `shapes`: those of the weights of each link."""

    def __init__(self, groups: list[dist.ProcessGroup], shapes: list[list[tuple[int, ...]]], rank: int, weight: float):
        self.groups, self.weight = groups, weight
        self.sums = [LowRankSum(some, rank) for some in shapes]

    def reduce(self, values: list[Tensor], fragment: int) -> list[Tensor]:
        """The weighted mean, of the whole model."""
        assert fragment == 0
        three = zip(self.sums, values, self.groups, strict=True)
        return [total.sum(one * self.weight, group) for total, one, group in three]
