"""Collective algorithms as rounds of transfers between ranks: source, target, share of the buffer.

One module is one algorithm. It has `OPERATIONS` (the operations it can do), `IN_LIBRARY` (whether NCCL and similar libraries
choose it by themselves; a planner must not rely on any other), `IN_NETWORK` (whether switches between hosts add up, which
`sim.hardware.transport.reduces_in_network` says of a group), `PIPELINED` (whether ranks forward the payload chunk by chunk, so
that a step between hosts waits for a whole chunk) and `rounds(operation, hosts)`. `hosts` are the ranks of the group, host by
host in ring order. Sizes are shares of the collective's buffer, so rounds do not depend on the payload. Closed forms add up
the rounds on an idle network, and the engine simulates them on the shared one. The modules of this folder are the registry."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from sim.errors import PlanError
from sim.registry import Registry

Hosts: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer of `share` of the buffer between two ranks; the longest dependency chain crosses it `steps` times."""

    source: int
    target: int
    share: float
    steps: float


@dataclass(frozen=True, slots=True)
class Round:
    """Transfers that run at the same time and share one rate, `repeats` times.

    `messages`: messages that one rank sends to ranks of other hosts, one after the other.
    """

    transfers: tuple[Transfer, ...]
    repeats: int = 1
    messages: int = 0


class Collective(Protocol):
    """The interface of every module of this folder."""

    IN_LIBRARY: bool
    IN_NETWORK: bool
    PIPELINED: bool
    OPERATIONS: tuple[str, ...]

    def rounds(self, operation: str, hosts: Hosts) -> tuple[Round, ...]:
        """Rounds of an operation over at least two ranks; raises NotDefined if it does not exist for these hosts."""
        ...


REGISTRY: Registry[Collective] = Registry(__name__, "collective", PlanError)


def names() -> tuple[str, ...]:
    """Names of all collectives, sorted."""
    return REGISTRY.names


def get(name: str) -> Collective:
    """The collective of a name; raises PlanError for an unknown one."""
    return REGISTRY.get(name)


@functools.lru_cache(maxsize=1024)  # protocols and stages of a shape use the same rounds
def rounds(name: str, operation: str, hosts: Hosts) -> tuple[Round, ...]:
    """Rounds of an operation under a collective, or under its substitute (`doer`)."""
    return get(doer(name, operation)).rounds(operation, hosts)


@functools.cache
def doer(name: str, operation: str) -> str:
    """The collective that runs an operation where `name` is chosen: the first able of `name`, ring (as in NCCL), all_to_all."""
    return next(one for one in (name, "ring", "all_to_all") if operation in get(one).OPERATIONS)


def is_in_network(name: str, operation: str) -> bool:
    """Whether switches between hosts reduce in an operation under a collective, or under its substitute (`doer`)."""
    return get(doer(name, operation)).IN_NETWORK


def is_pipelined(name: str, operation: str) -> bool:
    """Whether an operation is pipelined under a collective, or under its substitute (`doer`)."""
    return get(doer(name, operation)).PIPELINED
