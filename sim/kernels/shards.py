"""Time of a sharded pass (ZeRO 3): a forward or backward of one stage whose weights are gathered layer by layer ahead of the
compute, and whose gradients are reduced layer by layer after it, with all collectives on one stream in order.

The first gather of a pass starts when both its rank and its stream are free, and no layer starts before that gather has ended:
by then all earlier work has ended. So the time of a pass from that start on does not depend on what ran before, and is computed
once.
"""

from __future__ import annotations

from typing import NamedTuple

from sim.kernels.memory import GATHERED_AHEAD
from sim.units import Seconds


class Bucket(NamedTuple):
    """A collective of one layer's weights or gradients: its seconds, and the share by which it slows compute beside it."""

    seconds: Seconds
    slows: float


class _Stream:
    """The collectives of a rank, one after the other."""

    def __init__(self) -> None:
        self.end: Seconds = 0.0
        self._running: list[tuple[Seconds, float]] = []

    def start(self, now: Seconds, bucket: Bucket) -> Seconds:
        """Queue a collective at `now`; returns when it ends."""
        self.end = max(self.end, now) + bucket.seconds
        self._running.append((self.end, bucket.slows))
        return self.end

    def beside(self, now: Seconds, compute: Seconds) -> Seconds:
        """The end of `compute` seconds of work that starts at `now`, slowed by each collective until that one ends."""
        self._running = [(end, slows) for end, slows in self._running if end > now]
        for end, slows in self._running:
            taken = min(end - now, compute * (1.0 + slows))
            now, compute = now + taken, compute - taken / (1.0 + slows)
        return now + max(compute, 0.0)


def sharded_pass(
    parts: int, compute: Seconds, seconds: Seconds, gather: Bucket, reduce: Bucket | None
) -> tuple[Seconds, Seconds]:
    """(end of the pass, end of its stream), counted from when rank and stream are free; actions as in `sim.kernels.lowering`.

    The pass takes `seconds`, of which collectives can slow `compute`, and is cut into `parts`. Each part waits for its gather,
    which starts `GATHERED_AHEAD` parts earlier, and starts a reduction at its end unless `reduce` is None.
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
