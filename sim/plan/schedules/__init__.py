"""Pipeline schedules: which microbatch a pipeline rank works on, and when.

One file, one schedule: a module with `NAME`, `CHUNKED` (a rank may hold several stages), `OVERLAPS_SENDS` (else a rank waits
until its message has left: Megatron-LM overlaps messages in the interleaved schedule only), `SPLITS_BACKWARD` (weight
gradients are an action W of their own, else part of B), `RECEIVES_FIRST` (a forward's message leaves behind the next
gradient's receive), and `actions(rank, ranks, microbatches, chunks)` that returns the compute actions of pipeline place
`rank` of `ranks`, which holds the stages rank, rank + ranks, ... (`chunks` of them, called vpp). The folder is the registry."""

from __future__ import annotations

import functools
from typing import Protocol

from sim.errors import PlanError
from sim.plan.program import Program
from sim.registry import Registry


class Schedule(Protocol):
    """What every module of this folder offers."""

    NAME: str
    CHUNKED: bool
    OVERLAPS_SENDS: bool
    SPLITS_BACKWARD: bool
    RECEIVES_FIRST: bool

    def actions(self, rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
        """Compute actions of a pipeline place, in order. Raises PlanError where the numbers do not fit the schedule."""
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
    """Compute actions of a pipeline place under a schedule; raises PlanError where the numbers do not fit."""
    schedule = get(name)
    if chunks > 1 and not schedule.CHUNKED:
        raise PlanError(f"schedule {name} holds one stage a rank; vpp {chunks} needs another, such as interleaved")
    return schedule.actions(rank, ranks, microbatches, chunks)


@functools.lru_cache(maxsize=4096)
def peak_in_flight(name: str, rank: int, ranks: int, microbatches: int, chunks: int) -> int:
    """Most microbatches of which a pipeline place holds anything at once, counted in stages (chunks) of this place."""
    return max(sum(pair) for pair in in_flight(name, rank, ranks, microbatches, chunks))


@functools.lru_cache(maxsize=4096)
def in_flight(name: str, rank: int, ranks: int, microbatches: int, chunks: int) -> tuple[tuple[int, int], ...]:
    """(between F and B, between B and W) microbatches held at once: the pairs that no other pair of the place exceeds.

    One pair where B is whole, and its second number is 0.
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
    """Weight gradients that a pipeline place still owes behind its last B; 0 where B is whole."""
    kinds = "".join(action.kind for action in actions(name, rank, ranks, microbatches, chunks))
    return len(kinds) - 1 - kinds.rindex("B")
