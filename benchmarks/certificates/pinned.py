"""Drawn requests with a pinned ZeRO stage, schedule or recomputation that other drawn requests do not have."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from benchmarks.certificates.fleets import size
from planner.request import Request

LARGEST = 400
"""Maximum number of pipelines of all shapes: dimensions are pinned until there are at most that many."""
PINS: tuple[dict[str, Any], ...] = (
    {"zero_stage": 0}, {"zero_stage": 2}, {"schedule": "gpipe"}, {"schedule": "1f1b-deepspeed"}, {"schedule": "zb-h2"},
    {"schedule": "zb-latency"}, {"schedule": "gpipe", "zero_stage": 0}, {"schedule": "1f1b", "zero_stage": 0},
    {"schedule": "zb-h1", "zero_stage": 0}, {"schedule": "1f1b-deepspeed", "zero_stage": 0},
    {"schedule": "interleaved", "zero_stage": 0}, {"recompute": "selective"},
)  # fmt: skip
OTHERS: tuple[tuple[str, Any], ...] = (
    ("tp", 1), ("tp", 2), ("dp", 1), ("dp", 2), ("microbatch_size", 1), ("microbatch_size", 2), ("recompute", "none"),
    ("recompute", "full"),
)  # fmt: skip
"""Pins of requests whose space is too large otherwise."""


def pinned(request: Request, seed: int) -> Request:
    """The request with one of `PINS` in place of its own pins of these dimensions, and others where its space is too large."""
    rng = random.Random(f"pinned {seed}")
    pin = rng.choice(PINS)
    dropped = dict.fromkeys({*pin, "vpp"} if "schedule" in pin else pin)
    found = replace(request, wishes=replace(request.wishes, **dropped | pin))
    for name, value in rng.sample(OTHERS, len(OTHERS)):
        if size(found, LARGEST) <= LARGEST:
            break
        if getattr(found.wishes, name) is None:
            found = replace(found, wishes=replace(found.wishes, **{name: value}))
    return found
