"""Tasks whose gradient collectives run bucket by bucket beside their parts: arrays of seconds over candidates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sim.analytic.candidates import Floats


def part_by_part(
    now: Floats, stream: Floats, n: Floats, compute: Floats, whole: Floats, reduce: Floats, share: Floats
) -> tuple[Floats, Floats]:
    """Ends of a task of n parts and of its stream: each part starts a reduction of a bucket, which slows the next parts."""
    lost_share = share / (1.0 + share)
    for slowed, here, each in buckets(n, compute, whole, reduce):
        lost = (stream - now) * lost_share
        now = now + here + np.minimum(np.maximum(lost, 0.0), share * slowed)
        stream = np.maximum(stream, now) + each
    return now, stream


def tails(n: Floats, seconds: list[Floats], reduce: Floats) -> Floats:
    """Time from the start of a task of n parts to the end of the reductions of its n buckets, for all stages."""
    whole = np.array(seconds)
    found: Floats = np.maximum(whole / n + reduce, whole + reduce / n)
    return found


def buckets(n: Floats, *seconds: Floats) -> Iterator[tuple[Floats, ...]]:
    """The given seconds divided into n parts, part by part; 0 for candidates whose parts are exhausted."""
    shares, least = tuple(one / n for one in seconds), int(n.min())
    for part in range(int(n.max())):
        yield shares if part < least else tuple(share * (part < n) for share in shares)
