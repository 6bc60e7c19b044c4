"""Outer updates: what an island does with the mean change of the weights, one class for each way.

An outer gradient is the weights of the last exchange minus the weights of now, so that an optimizer steps against it. Each
class keeps its state for one fragment of one link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from sim.errors import NotSupported
from sim.sync import Sync, get
from sim.sync.diloco import LEARNING_RATE, MOMENTUM

MIXED = 0.5
"""Share of an island's own weights that a result is mixed with, if inner steps ran beside the exchange (Streaming DiLoCo, arXiv
2501.18512, section 2.2)."""


class OuterUpdate(Protocol):
    """Interface of the classes of this module. `old` is the weights of the last exchange. With DISCARDS the next period begins
    with them: what an island sends is taken before a due result replaces them, and its own weights are dropped."""

    DISCARDS: bool
    old: Tensor

    def outer_gradient(self, now: Tensor) -> Tensor:
        """What an island sends, from its weights."""
        ...

    def updated(self, now: Tensor, mean: Tensor) -> Tensor:
        """New weights, from the weights of now and the mean outer gradient."""
        ...


class MeanOfWeights:
    """The mean of the weights of all islands (Local SGD)."""

    DISCARDS = False

    def __init__(self, weights: Tensor, overlaps: bool):
        self.old = weights.clone()

    def outer_gradient(self, now: Tensor) -> Tensor:
        """The change since the last exchange."""
        return self.old - now

    def updated(self, now: Tensor, mean: Tensor) -> Tensor:
        """The weights of the last exchange, plus the mean change."""
        self.old = self.old - mean
        return self.old.clone()


class Nesterov:
    """A step of SGD with Nesterov momentum (DiLoCo). After inner steps beside the exchange, the result is mixed with the
    weights of now (Streaming DiLoCo)."""

    DISCARDS = False

    def __init__(self, weights: Tensor, overlaps: bool):
        self.old, self.momentum = weights.clone(), torch.zeros_like(weights)
        self.share = MIXED if overlaps else 0.0

    def outer_gradient(self, now: Tensor) -> Tensor:
        """The change since the last outer step."""
        return self.old - now

    def step(self, mean: Tensor) -> None:
        """One step of the outer optimizer, as `torch.optim.SGD` computes it."""
        self.momentum = MOMENTUM * self.momentum + mean
        self.old = self.old - LEARNING_RATE * (mean + MOMENTUM * self.momentum)

    def updated(self, now: Tensor, mean: Tensor) -> Tensor:
        """The result of the outer step, mixed with the weights of now."""
        self.step(mean)
        return torch.lerp(self.old, now, self.share)


class DelayedNesterov(Nesterov):
    """The outer step of CO2, with the mean outer gradient of the period before. The change of the period that has just ended is
    not lost with the weights of now, which are dropped: it is under way, and arrives one period later.

    The staleness gap, how far the weights have moved since the outer gradient was taken, in units of that gradient, divides it
    if it is above 1. This follows the idea of CO2 (arXiv 2401.16265, section 3.3); its definition there may differ in detail,
    and its clipping of the outer momentum is left out."""

    DISCARDS = True

    def __init__(self, weights: Tensor, overlaps: bool):
        super().__init__(weights, overlaps)
        self.taken_at = self.old

    def updated(self, now: Tensor, mean: Tensor) -> Tensor:
        """The result of the outer step; all islands begin the next period with it."""
        moved, before = float((self.old - self.taken_at).norm()), self.old
        gap = max(1.0, moved / max(float(mean.norm()), torch.finfo(torch.float32).tiny))
        self.step(mean / gap)
        self.taken_at = before
        return self.old.clone()


UPDATES: dict[str, Callable[[Tensor, bool], OuterUpdate]] = {
    "mean": MeanOfWeights,
    "nesterov": Nesterov,
    "delayed": DelayedNesterov,
}
"""What a strategy does with the mean (`OUTER` of `sim.sync`) -> the class."""


def of(sync: Sync) -> Callable[[Tensor, bool], OuterUpdate]:
    """The outer update of a strategy that exchanges outer gradients. Raises NotSupported for one that this backend lacks."""
    outer = "delayed" if sync.strategy == "co2" else get(sync.strategy).OUTER
    if outer not in UPDATES:
        raise NotSupported(f"the torch backend cannot execute the outer update {outer} of {sync.strategy}")
    return UPDATES[outer]
