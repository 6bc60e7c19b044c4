"""Mutable state of a simulation: ranks, the transfers between them, and components of ranks."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import simpy

from sim.engine.parts import Indices
from sim.kernels import lowering
from sim.network.sharing import Flow
from sim.units import Seconds

Steps: TypeAlias = Generator[simpy.Event, Any, None]
"""A SimPy process, or a part of one."""


@dataclass(slots=True, eq=False)
class Transfer:
    """A message or a collective, from the first rank that arrives at it until its end; a message until it is received.

    key         (carrier, operation, stage, microbatch) of a message, (carrier, number) of the carrier's n-th collective
    arrivals    ranks that have arrived at a collective
    ready       when the sender issued it or its last rank arrived; below 0 before
    begun       when it begins on the network; below 0 before
    lasted      seconds of a message that has ended on the network
    previous    the transfer of its lane that it has to wait for
    after       index of the span whose end lets it begin (`Span.after`)
    leg, until  the leg of its route that it is at, and when the latency of that leg ends
    flow        its bytes on the network now
    last        index of the span that ends with it
    """

    key: tuple[Any, ...]
    arrivals: int = 0
    ready: Seconds = -1.0
    begun: Seconds = -1.0
    lasted: Seconds = 0.0
    previous: Transfer | None = None
    after: int = -1
    leg: int = -1
    until: Seconds = 0.0
    flow: Flow | None = None
    last: int = -1
    has_ended: bool = False
    done: simpy.Event | None = None

    def ended(self, env: simpy.Environment) -> simpy.Event:
        """The event of its end, made for the first process that waits for it; its value is `last`."""
        if self.done is None:
            self.done = env.event()
        return self.done

    def end(self, last: int) -> None:
        """End with span `last`."""
        self.last, self.has_ended = last, True
        if self.done is not None:
            self.done.succeed(last)


@dataclass(slots=True, eq=False)
class Component:
    """Ranks whose steady state is extrapolated together (`sim.engine.components`); the first is the leader.

    `carriers` join these ranks, `spans` are the indices of their spans. `skipped` counts extrapolated microbatches: it is
    subtracted from the microbatches of actions, so that transfers under way keep their keys, and added again in spans."""

    ranks: list[Rank] = field(default_factory=list)
    carriers: set[int] = field(default_factory=set)
    spans: Indices = field(default_factory=Indices)
    skipped: int = 0

    def relative(self, span: int) -> int:
        """A number for a span: below 0 for a span of this component, counted from its last one (-1); else the index + 1."""
        position = self.spans.find(span)
        return position - len(self.spans) if position >= 0 else span + 1

    def absolute(self, relative: int) -> int:
        """Inverse of `relative`: the index of a span."""
        return self.spans[relative] if relative < 0 else relative - 1


@dataclass(slots=True, eq=False)
class Rank:
    """One class of ranks: `rank` is its representative, `pp_rank` the pipeline rank, `index` the number of the class.

    piece, position  the action of its program that it is at (`sim.kernels.lowering.Lowered.piece`)
    since, until     when it began to wait or compute, and when its compute ends
    last             index of the span whose end let it go on
    overlapped       number of collectives started and not ended that run beside its compute
    slowdowns        interference factors of those that are on the network
    changed          event that interrupts its compute when `slowdowns` change
    arrived          carrier -> number of its collectives that the rank has arrived at
    started          (stage, group, operation, part) -> collectives that the rank started together
    """

    index: int
    rank: int
    pp_rank: int
    program: lowering.Lowered
    component: Component
    piece: int = -1
    position: int = 0
    since: Seconds = 0.0
    until: Seconds = 0.0
    last: int = -1
    overlapped: int = 0
    slowdowns: list[float] = field(default_factory=list)
    changed: simpy.Event | None = None
    arrived: dict[int, int] = field(default_factory=dict)
    started: dict[tuple[int, str, str, int], tuple[Transfer, ...]] = field(default_factory=dict)


def elapse(env: simpy.Environment, what: Rank | Transfer, seconds: Seconds) -> Steps:
    """Wait until `what.until`, which is `seconds` from now; an extrapolation may postpone it meanwhile."""
    what.until = env.now + seconds
    while seconds > 0.0:
        yield env.timeout(seconds)
        seconds = remaining(env, what)


def remaining(env: simpy.Environment, what: Rank | Transfer) -> Seconds:
    """Seconds until `what.until`, rounded up so that one timeout reaches it; 0 when it is reached."""
    now, seconds = env.now, max(what.until - env.now, 0.0)
    return seconds if now + seconds >= what.until else math.nextafter(seconds, math.inf)
