"""Pipeline schedules: the order of forward and backward passes of microbatches on each pipeline rank.

Each module of this folder is one schedule, and the folder is the registry. A module must define

NAME              its name in options and files
CHUNKED           a rank may hold several stages; if PLANNED not with SPLITS_BACKWARD, for which the planner has no bounds
OVERLAPS_SENDS    messages overlap with compute; else a rank waits until its message has left (Megatron-LM overlaps messages in
                  the interleaved schedule only)
SPLITS_BACKWARD   weight gradients are a separate action W, else part of B
RECEIVES_FIRST    the message of a forward leaves after the next gradient is received
actions(rank, ranks, microbatches, chunks)    the compute actions of pipeline rank `rank` of `ranks`, which holds the `chunks`
                  (vpp) stages rank, rank + ranks, ..., unless the module has rank_of(stage, ranks), the rank of a stage

It may define facts that the planner uses. Where one is missing, the planner assumes a value that is safe for its bounds:

PLANNED           the planner can use the schedule; else it is for plans that are written by hand (if missing: yes)
PAIRED            some forwards run at the same time as a backward, and both hide their exchanges of tokens; a rank holds two
                  stages along a V, and where it is pinned the planner has a search of its own for it (if missing: no)
SEARCHED          the planner tries the schedule also where it is not pinned (if missing: yes)
PRODUCTION        a schedule that training frameworks commonly run, so that plans have it by default (if missing: no)
FORWARDS_FIRST    every rank runs all its forwards before its first backward, and so holds all microbatches (if missing: no)
WHOLE_ROUNDS      `ranks` must divide the number of microbatches (if missing: `actions` is called to see whether it raises)
WARM_UP           an integer k that bounds the warm-up. (a) No rank holds more than (k + chunks - 1) x ranks activations of one
                  virtual stage and microbatch. (b) Beyond 2 x ranks microbatches, a further one changes neither `in_flight`
                  nor `weights_behind` of any rank. (c) A rank with n or more ranks behind it holds at least as much as the
                  rank of the same pipeline with n behind it and, without chunks, as rank 0 of n + 1 ranks, if an activation
                  that waits for W takes no more memory than one that waits for B. If missing: a rank is known to hold at
                  least one microbatch and at most all.

actions_of_sizes(rank, sizes, microbatches)    the compute actions of a pipeline rank with so many microbatches of its own,
                  where ranks have microbatches of unlike `sizes` (samples of each, by rank; of any two one divides the other).
                  If missing, all ranks need equal microbatches

A module may define listed(text), the schedule of the name `NAME=text`, for schedules that differ from plan to plan.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

from sim.errors import NotDefined, PlanError
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
        """Compute actions of a pipeline rank, in order. Raises NotDefined if the schedule does not exist for the numbers."""
        ...


REGISTRY: Registry[Schedule] = Registry(__name__, "schedule", PlanError, by_constant=True)


def names() -> tuple[str, ...]:
    """Names of all schedules, sorted."""
    return REGISTRY.names


@functools.lru_cache(maxsize=4096)
def get(name: str) -> Schedule:
    """The schedule of a name; raises PlanError for an unknown one. A module may define schedules `NAME=text` (`listed`)."""
    return _listed(*name.split("=", 1)) if "=" in name else REGISTRY.get(name)


@functools.lru_cache(maxsize=4096)
def _listed(name: str, text: str) -> Schedule:
    listed: Callable[[str], Schedule] | None = getattr(REGISTRY.get(name), "listed", None)
    if listed is None:
        raise PlanError(f"schedule {name} takes no list; {name}={text} has one")
    return listed(text)


@functools.lru_cache(maxsize=4096)
def actions(name: str, rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """Compute actions of a pipeline rank under a schedule; raises NotDefined if it does not exist for the numbers."""
    schedule = get(name)
    if chunks > 1 and not schedule.CHUNKED:
        raise NotDefined(f"schedule {name} has one stage per rank; vpp {chunks} needs schedule interleaved")
    return schedule.actions(rank, ranks, microbatches, chunks)


def takes_sizes(name: str) -> bool:
    """Whether pipeline ranks may have microbatches of unlike sizes."""
    return hasattr(get(name), "actions_of_sizes")


@functools.lru_cache(maxsize=4096)
def actions_of_sizes(name: str, rank: int, sizes: tuple[int, ...], microbatches: int) -> Program:
    """Compute actions of a pipeline rank with so many microbatches of its own size; `sizes`: those of all ranks. The schedule
    must take them (`takes_sizes`)."""
    of_sizes: Callable[[int, tuple[int, ...], int], Program] = get(name).actions_of_sizes  # type: ignore[attr-defined]
    return of_sizes(rank, sizes, microbatches)


def is_searched(name: str) -> bool:
    """Whether the planner tries a schedule that is not pinned."""
    return bool(getattr(get(name), "SEARCHED", True))


def is_planned(name: str) -> bool:
    """Whether the planner can use a schedule."""
    return bool(getattr(get(name), "PLANNED", True))


def can_be_pinned(name: str) -> bool:
    """Whether the planner can use a schedule that is pinned: one that it can use, or has a search of its own for."""
    return is_planned(name) or is_paired(name)


def is_paired(name: str) -> bool:
    """Whether some forwards run at the same time as a backward."""
    return bool(getattr(get(name), "PAIRED", False))


@functools.lru_cache(maxsize=1 << 16)
def rank_of(name: str, stage: int, ranks: int) -> int:
    """The pipeline rank that holds a stage."""
    placed: Callable[[int, int], int] | None = getattr(get(name), "rank_of", None)
    return stage % ranks if placed is None else placed(stage, ranks)


@functools.lru_cache(maxsize=1 << 16)
def stages_of(name: str, rank: int, ranks: int, stages: int) -> tuple[int, ...]:
    """The stages, of so many, that a pipeline rank holds."""
    return tuple(stage for stage in range(stages) if rank_of(name, stage, ranks) == rank)


def is_production(name: str) -> bool:
    """Whether training frameworks commonly run a schedule."""
    return bool(getattr(get(name), "PRODUCTION", False))


def forwards_first(name: str) -> bool:
    """Whether every rank is known to run all its forwards before its first backward."""
    return bool(getattr(get(name), "FORWARDS_FIRST", False))


def whole_rounds(name: str) -> bool | None:
    """Whether the number of ranks must divide the number of microbatches; None where the schedule does not say."""
    declared = getattr(get(name), "WHOLE_ROUNDS", None)
    return None if declared is None else bool(declared)


@functools.lru_cache(maxsize=4096)
def is_defined(name: str, ranks: int, microbatches: int, chunks: int) -> bool:
    """Whether a schedule is defined for these numbers."""
    declared = whole_rounds(name)
    if declared is not None:
        return microbatches % ranks == 0 or not declared
    try:
        actions(name, 0, ranks, microbatches, chunks)
    except PlanError:
        return False
    return True


def holds_more_before(name: str) -> bool:
    """Whether a rank is known to hold in flight at least what a rank with fewer ranks behind it holds (`WARM_UP`, c)."""
    return forwards_first(name) or _warm_up(name) is not None


def _few_microbatches(name: str, ranks: int, microbatches: int) -> int:
    """A number of microbatches, at most the given one, with the same `in_flight` and `weights_behind` on every rank
    (`WARM_UP`, b). With whole rounds it leaves the same remainder, so that the schedule is defined for both or for none."""
    if _warm_up(name) is None:
        return microbatches
    return min(microbatches, 2 * ranks + (microbatches % ranks if whole_rounds(name) else 0))


def most_in_flight(name: str, ranks: int, microbatches: int, chunks: int) -> tuple[int, int]:
    """Upper bounds on both numbers of each pair of `in_flight`, on every rank of a pipeline of up to `ranks` ranks."""
    k, every = _warm_up(name), microbatches * chunks
    most = every if k is None else min(every, (k + chunks - 1) * ranks)
    return most, most if get(name).SPLITS_BACKWARD else 0


def has_bounded_warm_up(name: str) -> bool:
    """Whether the schedule says how long its warm-up is at most (`WARM_UP`)."""
    return _warm_up(name) is not None


def _warm_up(name: str) -> int | None:
    declared = getattr(get(name), "WARM_UP", None)
    return None if declared is None else int(declared)


@functools.lru_cache(maxsize=4096)
def peak_in_flight(name: str, rank: int, ranks: int, microbatches: int, chunks: int) -> int:
    """Maximum number of microbatches in flight on a pipeline rank, those between B and W included; counted per chunk."""
    return max(sum(pair) for pair in in_flight(name, rank, ranks, microbatches, chunks))


@functools.lru_cache(maxsize=1 << 16)
def in_flight(name: str, rank: int, ranks: int, microbatches: int, chunks: int) -> tuple[tuple[int, int], ...]:
    """Pareto-maximal pairs (microbatches between F and B, microbatches between B and W) held at once by a pipeline rank.

    If the schedule does not split the backward there is one pair, whose second number is 0.
    """
    return _in_flight(name, rank, ranks, _few_microbatches(name, ranks, microbatches), chunks)


@functools.lru_cache(maxsize=1 << 16)
def _in_flight(name: str, rank: int, ranks: int, microbatches: int, chunks: int) -> tuple[tuple[int, int], ...]:
    return _most_held(actions(name, rank, ranks, microbatches, chunks), get(name).SPLITS_BACKWARD)


@functools.lru_cache(maxsize=4096)
def in_flight_of_sizes(name: str, rank: int, sizes: tuple[int, ...], microbatches: int) -> tuple[tuple[int, int], ...]:
    """`in_flight` of a pipeline rank where ranks have microbatches of unlike sizes, counted in its own."""
    return _most_held(actions_of_sizes(name, rank, sizes, microbatches), get(name).SPLITS_BACKWARD)


def _most_held(program: Program, splits: bool) -> tuple[tuple[int, int], ...]:
    before, between = 0, 0
    most: dict[int, int] = {}
    for kind, *_ in program:
        if kind == "F":
            before += 1
        elif kind == "B":
            before, between = before - 1, between + splits
        else:
            between -= 1
        if before > most.get(between, -1):
            most[between] = before
    return tuple((most[w], w) for w in sorted(most) if all(most[w] > most[other] for other in most if other > w))


@functools.lru_cache(maxsize=1 << 16)
def weights_behind(name: str, rank: int, ranks: int, microbatches: int, chunks: int) -> int:
    """Number of weight gradients W that a pipeline rank computes after its last B; 0 if the backward is not split."""
    few = _few_microbatches(name, ranks, microbatches)
    kinds = "".join(action.kind for action in actions(name, rank, ranks, few, chunks))
    return len(kinds) - 1 - kinds.rindex("B")
