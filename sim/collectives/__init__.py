"""Collectives as rounds of transfers: who sends how much to whom, and how often.

One file, one algorithm: a module with `OPERATIONS` (what it can do), `IN_LIBRARY` (whether NCCL and its kin do it by
themselves; what they do not, a planner must not count on) and `rounds(operation, hosts)`. `hosts` are the ranks of the group,
host by host in ring order. Sizes are shares of the collective's buffer, so a round fits any payload. Costs add the rounds up
on an idle network, the engine plays them on the busy one. The folder is the registry."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from sim.registry import Registry

Hosts: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Transfer:
    """`share` of the buffer goes from one rank to another; `steps` times the longest chain of waiting passes over it."""

    source: int
    target: int
    share: float
    steps: float


@dataclass(frozen=True, slots=True)
class Round:
    """Transfers that go on together at one pace, `repeats` times."""

    transfers: tuple[Transfer, ...]
    repeats: int = 1


class Collective(Protocol):
    """What every module of this folder offers."""

    IN_LIBRARY: bool
    OPERATIONS: tuple[str, ...]

    def rounds(self, operation: str, hosts: Hosts) -> tuple[Round, ...]:
        """Rounds of an operation over at least two ranks; raises PlanError where the hosts do not fit."""
        ...


REGISTRY: Registry[Collective] = Registry(__name__, "collective")


def names() -> tuple[str, ...]:
    """Names of all collectives, sorted."""
    return REGISTRY.names


def get(name: str) -> Collective:
    """The collective of a name; raises PlanError."""
    return REGISTRY.get(name)


@functools.lru_cache(maxsize=1024)  # every protocol, operation and stage of a shape asks for the same ones
def rounds(name: str, operation: str, hosts: Hosts) -> tuple[Round, ...]:
    """Rounds of an operation; a collective that cannot do it leaves it to the ring, as NCCL does, or else to all_to_all."""
    return get(doer(name, operation)).rounds(operation, hosts)


@functools.cache
def doer(name: str, operation: str) -> str:
    """The collective that does an operation where one is chosen."""
    return next(one for one in (name, "ring", "all_to_all") if operation in get(one).OPERATIONS)
