"""Pipeline schedules: which microbatch a pipeline rank works on, and when.

One file, one schedule: a module with `NAME`, `CHUNKED` (a rank may hold several stages), `OVERLAPS_SENDS` (else a rank waits
until its message has left: Megatron-LM overlaps messages in the interleaved schedule only), where it holds for the schedule
`RECEIVES_FIRST` (a forward's message leaves behind the next gradient's receive), and `actions(rank, ranks,
microbatches, chunks)` that returns the compute actions of pipeline place `rank` of `ranks`, which holds the stages rank, rank
+ ranks, ... (`chunks` of them, called vpp). The folder is the registry."""

from __future__ import annotations

import functools
from importlib import import_module
from pkgutil import iter_modules
from typing import Protocol

from sim.errors import PlanError
from sim.program import Program


class Schedule(Protocol):
    """What every module of this folder offers."""

    NAME: str
    CHUNKED: bool
    OVERLAPS_SENDS: bool

    def actions(self, rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
        """Compute actions of a pipeline place, in order. Raises PlanError where the numbers do not fit the schedule."""
        ...


@functools.cache
def _modules() -> dict[str, Schedule]:
    found = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    return {module.NAME: module for module in found}


def names() -> tuple[str, ...]:
    """Names of all schedules, sorted."""
    return tuple(sorted(_modules()))


def get(name: str) -> Schedule:
    """The schedule of a name; raises PlanError."""
    if name not in _modules():
        raise PlanError(f"schedule {name!r} is unknown; known: {', '.join(names())}")
    return _modules()[name]


@functools.lru_cache(maxsize=4096)
def actions(name: str, rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """Compute actions of a pipeline place under a schedule; raises PlanError where the numbers do not fit."""
    schedule = get(name)
    if chunks > 1 and not schedule.CHUNKED:
        raise PlanError(f"schedule {name} holds one stage a rank; vpp {chunks} needs another, such as interleaved")
    return schedule.actions(rank, ranks, microbatches, chunks)


@functools.lru_cache(maxsize=4096)
def peak_in_flight(name: str, rank: int, ranks: int, microbatches: int, chunks: int) -> int:
    """Most microbatches whose activations a pipeline place holds at once, counted in stages (chunks) of this place."""
    held = peak = 0
    for action in actions(name, rank, ranks, microbatches, chunks):
        held += {"F": 1, "B": -1}.get(action.kind, 0)
        peak = max(peak, held)
    return peak
