"""How many messages leave a node for each microbatch: those of stages that fill the devices of a cluster one after the other.

Rank r of a stage exchanges messages with rank r of the next one. A message leaves a node if the other rank is on another node,
or on another cluster. A rank sends one ahead, unless it is on the last stage of a pipeline, and one back, unless it is on the
first; a node receives as many as it sends."""

from __future__ import annotations

import functools
from collections import Counter
from typing import NamedTuple


class Place(NamedTuple):
    """Where the stages of a cluster are in a pipeline: whether there are stages of other clusters before and behind them."""

    before: bool
    behind: bool


INSIDE = Place(True, True)
AT_AN_END = Place(False, True), Place(True, False)


@functools.lru_cache(maxsize=1 << 16)
def most_sent(ranks: int, per_node: int, stages: int, place: Place) -> int:
    """Messages of single ranks that the busiest node sends for each microbatch.

    ranks: of a stage; per_node: devices of a node that have ranks."""
    sent = Counter[int]()
    for stage in range(stages):
        for device in range(stage * ranks, (stage + 1) * ranks):
            node = device // per_node
            ahead = place.behind if stage == stages - 1 else (device + ranks) // per_node != node
            back = place.before if stage == 0 else (device - ranks) // per_node != node
            sent[node] += ahead + back
    return max(sent.values())


@functools.lru_cache(maxsize=1 << 16)
def least_sent(ranks: int, per_node: int, stages: int) -> int:
    """As `most_sent`, at the end of a pipeline where it is less."""
    return min(most_sent(ranks, per_node, stages, place) for place in AT_AN_END)
