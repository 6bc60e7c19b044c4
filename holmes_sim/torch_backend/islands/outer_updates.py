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
from sim.sync import Sync, co2, diloco, get

MIXED = 0.5
"""Share of an island's own weights that a result is mixed with, if inner steps ran beside the exchange (Streaming DiLoCo, arXiv
2501.18512, section 2.2)."""


class MeanOfWeights:
    """The mean of the weights of all islands (Local SGD). `old` is the weights of the last exchange.

    With BEGINS_FIRST an exchange that begins when the result of another one is due sends the change before that result."""

    BEGINS_FIRST = False

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
        self.rate, self.decay = diloco.LEARNING_RATE, diloco.MOMENTUM

    def step(self, mean: Tensor) -> None:
        """A step of the outer optimizer, as `torch.optim.SGD` computes it."""
        self.momentum = self.decay * self.momentum + mean
        self.result = self.old - self.rate * (mean + self.decay * self.momentum)

    def finish(self, now: Tensor) -> Tensor:
        """The result of the outer step, mixed with the weights of now."""
        self.old = self.result
        return torch.lerp(self.old, now, self.share)


class DelayedNesterov(Nesterov):
    """The outer step of CO2, with the mean outer gradient of the period before. An island begins the next period with the
    result and its own change of the period that has just ended, whose mean is still under way.

    The staleness gap, how far the outer weights have moved since the outer gradient was taken, in units of that gradient,
    divides it if it is above 1. This follows the idea of CO2 (arXiv 2401.16265, section 3.3). Its authors' code divides the
    outer gradient by a constant penalty, 1 by default, and does not keep the result of its clipping of the outer momentum
    (weigao266/fairscale-CO2 55aaca5, gossip/co2.py)."""

    BEGINS_FIRST = True

    def __init__(self, weights: Tensor, overlaps: bool):
        super().__init__(weights, False)
        self.rate, self.decay = co2.LEARNING_RATE, co2.MOMENTUM
        self.taken_at = self.start = self.old
        self.change = torch.zeros_like(weights)

    def outer_gradient(self, now: Tensor) -> Tensor:
        """The change of this period."""
        self.change, self.start = self.start - now, now
        return self.change

    def step(self, mean: Tensor) -> None:
        """A step with the outer gradient, divided by its staleness gap."""
        moved = float((self.old - self.taken_at).norm())
        super().step(mean / max(1.0, moved / max(float(mean.norm()), torch.finfo(torch.float32).tiny)))

    def finish(self, now: Tensor) -> Tensor:
        """The result of the outer step with the own change of this period."""
        self.taken_at, self.old = self.old, self.result
        self.start = self.old - self.change
        return self.start


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
