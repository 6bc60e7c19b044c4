"""Turns of a stage under ZeRO 3: weights gathered layer by layer ahead of it, gradients reduced behind it, over one stream.

The first gather of a turn begins when its place and its stream are free, and no layer begins before it: what went before has
ended by then. So a turn takes the same from then on whatever went before, and is reckoned once.
"""

from __future__ import annotations

from typing import NamedTuple

from sim.kernels.memory import GATHERED_AHEAD
from sim.units import Seconds


class Bucket(NamedTuple):
    """A collective of one layer's weights or gradients: its seconds, and by what share it slows compute beside it."""

    seconds: Seconds
    slows: float


class _Stream:
    """Collectives of a place, one behind the other."""

    def __init__(self) -> None:
        self.end: Seconds = 0.0
        self._under_way: list[tuple[Seconds, float]] = []

    def start(self, now: Seconds, bucket: Bucket) -> Seconds:
        """Put a collective behind those that are there; when it ends."""
        self.end = max(self.end, now) + bucket.seconds
        self._under_way.append((self.end, bucket.slows))
        return self.end

    def beside(self, now: Seconds, compute: Seconds) -> Seconds:
        """The end of compute that begins now, slowed by each collective as long as it goes on."""
        self._under_way = [(end, slows) for end, slows in self._under_way if end > now]
        for end, slows in self._under_way:
            taken = min(end - now, compute * (1.0 + slows))
            now, compute = now + taken, compute - taken / (1.0 + slows)
        return now + max(compute, 0.0)


def turn(parts: int, compute: Seconds, seconds: Seconds, gather: Bucket, reduce: Bucket | None) -> tuple[Seconds, Seconds]:
    """(end of a turn, end of its stream) from when its place and its stream are free, as `sim.kernels.lowering` cuts it.

    `seconds` in all, of which `compute` can be slowed, are cut in `parts`; before each a bucket is gathered, `GATHERED_AHEAD`
    parts ahead, and behind each one is reduced unless the turn reduces nothing.
    """
    stream, now = _Stream(), 0.0
    gathered = [stream.start(now, gather) for _ in range(min(GATHERED_AHEAD, parts))]
    for part in range(parts):
        now = max(now, gathered[part])
        if part + GATHERED_AHEAD < parts:
            gathered.append(stream.start(now, gather))
        now = stream.beside(now, compute / parts) + (seconds - compute) / parts
        if reduce is not None:
            stream.start(now, reduce)
    return now, stream.end
