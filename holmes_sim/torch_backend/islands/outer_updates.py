"""Outer updates: what an island does with the mean change of the weights, one class for each way.

An outer gradient is the weights of the last exchange minus the weights of now, so that an optimizer steps against it. Each
object keeps its state for one fragment of one link. The outer step runs in the thread of the exchange, beside inner steps; its
result is used when it is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from sim.errors import NotSupported
from sim.sync import Sync, get
from sim.sync.diloco import LEARNING_RATE, MOMENTUM

MIXED = 0.5
"""Share of an island's own weights that a result is mixed with, if inner steps ran beside the exchange (Streaming DiLoCo, arXiv
2501.18512, section 2.2)."""


class MeanOfWeights:
    """The mean of the weights of all islands (Local SGD). `old` is the weights of the last exchange.

    With DISCARDS the next period begins with `old`, and the island's own weights are dropped once their change is sent."""

    DISCARDS = False

    def __init__(self, weights: Tensor, overlaps: bool):
        self.old = self.result = weights.clone()

    def outer_gradient(self, now: Tensor) -> Tensor:
        """What an island sends: its change since the last exchange."""
        return self.old - now

    def step(self, mean: Tensor) -> None:
        """Compute the result from the mean outer gradient of all islands, in the thread of the exchange."""
        self.result = self.old - mean

    def finish(self, now: Tensor) -> Tensor:
        """New weights, from the weights of now, when the result is due."""
        self.old = self.result
        return self.old


class Nesterov(MeanOfWeights):
    """A step of SGD with Nesterov momentum (DiLoCo). After inner steps beside the exchange, the result is mixed with the
    weights of now (Streaming DiLoCo)."""

    def __init__(self, weights: Tensor, overlaps: bool):
        super().__init__(weights, overlaps)
        self.momentum, self.share = torch.zeros_like(weights), MIXED if overlaps else 0.0

    def step(self, mean: Tensor) -> None:
        """A step of the outer optimizer, as `torch.optim.SGD` computes it."""
        self.momentum = MOMENTUM * self.momentum + mean
        self.result = self.old - LEARNING_RATE * (mean + MOMENTUM * self.momentum)

    def finish(self, now: Tensor) -> Tensor:
        """The result of the outer step, mixed with the weights of now."""
        self.old = self.result
        return torch.lerp(self.old, now, self.share)


class DelayedNesterov(Nesterov):
    """The outer step of CO2, with the mean outer gradient of the period before. The change of the period that has just ended is
    not lost with the weights of now, which are dropped: it is under way, and arrives one period later.

    The staleness gap, how far the weights have moved since the outer gradient was taken, in units of that gradient, divides it
    if it is above 1. This follows the idea of CO2 (arXiv 2401.16265, section 3.3); its definition there may differ in detail,
    and its clipping of the outer momentum is left out."""

    DISCARDS = True

    def __init__(self, weights: Tensor, overlaps: bool):
        super().__init__(weights, False)
        self.taken_at = self.old

    def step(self, mean: Tensor) -> None:
        """A step with the outer gradient, divided by its staleness gap."""
        moved = float((self.old - self.taken_at).norm())
        super().step(mean / max(1.0, moved / max(float(mean.norm()), torch.finfo(torch.float32).tiny)))

    def finish(self, now: Tensor) -> Tensor:
        """The result of the outer step; all islands begin the next period with it."""
        self.taken_at = self.old
        return super().finish(now)


MakesUpdate: TypeAlias = Callable[[Tensor, bool], MeanOfWeights]
"""A function that makes an outer update, from the weights and whether inner steps run beside the exchange."""
UPDATES: dict[str, MakesUpdate] = {"mean": MeanOfWeights, "nesterov": Nesterov, "delayed": DelayedNesterov}
"""What a strategy does with the mean (`OUTER` of `sim.sync`) -> the class."""


def of(sync: Sync) -> MakesUpdate:
    """The outer update of a strategy that exchanges outer gradients. Raises NotSupported for one that this backend lacks."""
    outer = "delayed" if sync.strategy == "co2" else get(sync.strategy).OUTER
    if outer not in UPDATES:
        raise NotSupported(f"the torch backend cannot execute the outer update {outer} of {sync.strategy}")
    return UPDATES[outer]
