"""Seconds of the stages of one node class by their number of layers, and the monotone envelope of those seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class StageSeconds(NamedTuple):
    """Seconds of a stage of a given number of layers, for all m microbatches of a step.

    begin: earliest begin of the first forward by its parameter gathers, -inf if they do not count; own: m cycles plus the
    tail; both: `begin` (at least 0) plus `own`, or what the NICs of its nodes need where that is more; busy: rank time of m
    microbatches; lane: m microbatches on the message lane; weight: one weight gradient (W); tail: what follows the last
    backward (gradient reduction, optimizer, tied embedding).
    Of one microbatch: forward and inputs (gradients of inputs), each with the wait for its message to leave; trip: both without
    messages."""

    begin: float
    own: float
    both: float
    busy: float
    lane: float
    weight: float
    tail: float
    forward: float
    inputs: float
    trip: float


MAY_FALL = ("begin", "own", "both", "tail")
"""Seconds that may be fewer with more layers."""


class StageSizes:
    """Seconds of the stages of one class in one role for 1 to `largest` layers, and their monotone envelope.

    A larger stage can have a smaller `begin`, `own` or `tail`, because more gradient buckets hide more of the reduction. The
    envelope of a size replaces these and `both` by the least value over this size and all larger ones. So the envelope never
    exceeds the exact value, and never falls as layers are added. The other seconds never fall as layers are added anyway. Sizes
    are computed on demand, from the largest down."""

    def __init__(self, seconds: Callable[[int], StageSeconds], largest: int):
        self._seconds, self._largest = seconds, largest
        self._exact: list[StageSeconds] = []
        self._envelope: list[StageSeconds] = []
        self._rows: NDArray[np.float64] = np.empty((0, len(StageSeconds._fields)))
        self._within: dict[float, int] = {}

    def exact(self, layers: int) -> StageSeconds:
        """Seconds of a stage of `layers` layers."""
        self._down_to(layers)
        return self._exact[self._largest - layers]

    def rows(self, layers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds of stages of one or more layers each, shape (stages, fields of `StageSeconds`)."""
        self._down_to(int(layers.min()))
        if len(self._rows) < len(self._exact):
            self._rows = np.array(self._exact)
        found: NDArray[np.float64] = self._rows[self._largest - layers]
        return found

    def envelope(self, layers: int) -> StageSeconds:
        """Least seconds of a stage of `layers` layers or more."""
        index = self._largest - layers
        if index >= len(self._envelope):
            self._down_to(layers)
        return self._envelope[index]

    def most_within(self, seconds: float) -> int:
        """Most layers of a stage whose least `both` is no more than `seconds`; 0 where one layer takes longer."""
        if seconds not in self._within:
            k = self._largest
            while k > 0 and self.envelope(k).both > seconds:
                k -= 1
            self._within[seconds] = k
        return self._within[seconds]

    def _down_to(self, layers: int) -> None:
        for k in range(self._largest - len(self._exact), layers - 1, -1):
            size = self._seconds(k)
            self._exact.append(size)
            if self._envelope:
                above = self._envelope[-1]
                size = size._replace(**{name: min(getattr(size, name), getattr(above, name)) for name in MAY_FALL})
            self._envelope.append(size)
