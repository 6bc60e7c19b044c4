"""Pipeline schedules: the order of forward and backward passes of microbatches on each pipeline rank.

Each module of this folder is one schedule, and the folder is the registry. A module defines `NAME`, `CHUNKED` (a rank may hold
several stages), `OVERLAPS_SENDS` (else a rank waits until its message has left: Megatron-LM overlaps messages in the
interleaved schedule only), `SPLITS_BACKWARD` (weight gradients are a separate action W, else part of B), `RECEIVES_FIRST` (the
message of a forward leaves after the next gradient is received), and `actions(rank, ranks, microbatches, chunks)`, the compute
actions of pipeline rank `rank` of `ranks`, which holds the `chunks` (vpp) stages rank, rank + ranks, ..."""

from __future__ import annotations

import functools
from typing import Protocol

from sim.errors import PlanError
from sim.plan.program import Program
from sim.registry import Registry


class Schedule(Protocol):
    """Interface of every module of this folder."""

    NAME: str
    CHUNKED: bool
    OVERLAPS_SENDS: bool
    SPLITS_BACKWARD: bool
    RECEIVES_FIRST: bool

    def actions(self, rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
        """Compute actions of a pipeline rank, in order. Raises PlanError if the numbers do not fit the schedule."""
        ...


REGISTRY: Registry[Schedule] = Registry(__name__, "schedule", by_constant=True)


def names() -> tuple[str, ...]:
    """Names of all schedules, sorted."""
    return REGISTRY.names


def get(name: str) -> Schedule:
    """The schedule of a name; raises PlanError."""
    return REGISTRY.get(name)


@functools.lru_cache(maxsize=4096)
def actions(name: str, rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """Compute actions of a pipeline rank under a schedule; raises PlanError if the numbers do not fit."""
    schedule = get(name)
    if chunks > 1 and not schedule.CHUNKED:
        raise PlanError(f"schedule {name} holds one stage a rank; vpp {chunks} needs another, such as interleaved")
    return schedule.actions(rank, ranks, microbatches, chunks)


@functools.lru_cache(maxsize=4096)
def peak_in_flight(name: str, rank: int, ranks: int, microbatches: int, chunks: int) -> int:
    """Maximum number of microbatches in flight on a pipeline rank, those between B and W included; counted per chunk."""
    return max(sum(pair) for pair in in_flight(name, rank, ranks, microbatches, chunks))


@functools.lru_cache(maxsize=4096)
def in_flight(name: str, rank: int, ranks: int, microbatches: int, chunks: int) -> tuple[tuple[int, int], ...]:
    """Pareto-maximal pairs (microbatches between F and B, microbatches between B and W) held at once by a pipeline rank.

    If the schedule does not split the backward there is one pair, whose second number is 0.
    """
    splits, before, between = get(name).SPLITS_BACKWARD, 0, 0
    most: dict[int, int] = {}
    for action in actions(name, rank, ranks, microbatches, chunks):
        before += {"F": 1, "B": -1}.get(action.kind, 0)
        between += {"B": int(splits), "W": -1}.get(action.kind, 0)
        most[between] = max(before, most.get(between, 0))
    return tuple((most[w], w) for w in sorted(most) if all(most[w] > most[other] for other in most if other > w))


@functools.lru_cache(maxsize=4096)
def weights_behind(name: str, rank: int, ranks: int, microbatches: int, chunks: int) -> int:
    """Number of weight gradients W that a pipeline rank computes after its last B; 0 if the backward is not split."""
    kinds = "".join(action.kind for action in actions(name, rank, ranks, microbatches, chunks))
    return len(kinds) - 1 - kinds.rindex("B")
