"""A rank's program as nodes that wait for one another: what `sim.engine` simulates, with the same seconds of compute.

Compute, blocking collectives and receives stand one behind the other in the order of the program. A collective that goes on
behind the compute waits for what stands before it and for the one before it in its group, and what waits for it in the program
waits for it here. Messages to one peer leave in order, and hold the sender unless the schedule overlaps them.

Ranks that play the same program on the same device have the same nodes but for whom they talk to, so these are made once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from holmes_sim.chakra import protobuf
from holmes_sim.chakra.groups import Groups
from holmes_sim.chakra.protobuf import COLLECTIVE, COMPUTE, OPERATIONS, RECEIVE, SEND, Attributes, Node
from sim.engine.durations import Durations
from sim.kernels import lowering
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.plan.program import COMPUTE as COMPUTES
from sim.plan.program import Action
from sim.units import MICRO, Bytes, Seconds

Class: TypeAlias = tuple[int, int, tuple[str, ...]]
"""Pipeline place, microbatches, and the clusters of the tensor-parallel ranks, the rank's own first."""


class With(NamedTuple):
    """Whom a node talks to, in words that all ranks of a class share: a pipeline place, or a part of a group's collective."""

    is_source: bool = False
    place: int = -1
    kind: str = ""
    operation: str = ""
    part: int = 0


class Traces:
    """The traces of a plan's ranks."""

    def __init__(self, plan: Plan):
        self.plan, self.config, self.groups, self._durations = plan, plan.config, Groups(plan), Durations(plan)
        self._made: dict[Class, list[tuple[Node, bytes, With | None]]] = {}

    def nodes(self, rank: int) -> list[Node]:
        """The nodes of a rank, in the order of its program."""
        return [
            node if whom is None else node._replace(attributes=node.attributes + self._whom(rank, whom))
            for node, _, whom in self._of_class(rank)
        ]

    def trace(self, rank: int) -> bytes:
        """The file of a rank."""
        found: dict[With | None, bytes] = {None: b""}
        pieces = [protobuf.metadata()]
        for _, head, whom in self._of_class(rank):
            if whom not in found:
                found[whom] = protobuf.attributes(self._whom(rank, whom)) if whom else b""
            pieces.append(protobuf.delimited(head + found[whom]))
        return b"".join(pieces)

    def _of_class(self, rank: int) -> list[tuple[Node, bytes, With | None]]:
        tp, dp_cp, place = self.config.place(rank)
        members = (rank, *(self.config.rank(other, dp_cp, place) for other in range(self.config.tp) if other != tp))
        clusters = tuple(self.plan.placement[member].cluster for member in members)
        key = place, self.config.microbatches_of(dp_cp), clusters
        if key not in self._made:
            writer = _Writer(self.plan, rank, self.groups, self._durations)
            program = lowering.program(self.plan, *key[:2])
            made = [pair for action in program for pair in writer.nodes(action)]
            self._made[key] = [(node, protobuf.encoded(node), whom) for node, whom in made]
        return self._made[key]

    def _whom(self, rank: int, whom: With) -> Attributes:
        if whom.kind:
            return (("pg_name", str(self.groups.parts(whom.kind, rank, whom.operation)[whom.part][0])),)
        tp, dp_cp, _ = self.config.place(rank)
        peer = self.config.rank(tp, dp_cp, whom.place)
        source, target = (rank, peer) if whom.is_source else (peer, rank)
        return (("comm_src", source), ("comm_dst", target))


def sizes(total: Bytes, count: float) -> list[int]:
    """A payload in as many whole parts as collectives are told of (at least one), which add up to it, rounded."""
    number = max(1, round(count))
    ends = [round(total * index / number) for index in range(number + 1)]
    return [after - before for before, after in pairwise(ends)]


Made: TypeAlias = tuple[Node, With | None]


class _Writer:
    """The state of a class of ranks: ids so far, what the next node waits for, and the last node of every stream."""

    def __init__(self, plan: Plan, rank: int, groups: Groups, durations: Durations):
        self.config, self.rank, self.groups, self.durations = plan.config, rank, groups, durations
        self.overlaps_sends = schedules.get(plan.config.schedule).OVERLAPS_SENDS
        self.count = 0
        self.last: tuple[int, ...] = ()
        self.streams: dict[str, int] = {}
        self.started: dict[tuple[int, str, str, int], int] = {}
        self.computed: Seconds = 0.0

    def nodes(self, action: Action) -> Iterator[Made]:
        """The nodes of an action."""
        if action.kind in ("send", "recv"):
            yield self._message(action)
        elif action.kind == "wait":
            self.last += (self.started[action.stage, action.group, action.operation, action.part],)
        elif action.kind == "start":
            yield from self._collectives(action)
            self.started[action.stage, action.group, action.operation, action.part] = self.count
        elif action.kind == "ring":
            yield from self._collectives(action)
            walked = self.count
            yield self._compute(action)
            self.last = (walked, self.count)
        elif action.kind != "collective":
            yield self._compute(action)
            self.last = (self.count,)
        elif not self.durations.include(self.rank, action):
            yield from self._collectives(action)
            self.last = (self.count,)

    def _new(self, name: str, kind: int, after: tuple[int, ...], microseconds: int = 0, **more: bool | int | str) -> Node:
        self.count += 1
        return Node(self.count, name, kind, tuple(sorted(set(after))), microseconds, (("is_cpu_op", False), *more.items()))

    def _compute(self, action: Action) -> Made:
        """Whole microseconds, such that those of a rank add up to its seconds."""
        before = round(self.computed / MICRO)
        self.computed += self.durations.of(self.rank, action)
        stage = f"{action.stage}" if self.config.vpp > 1 and action.kind in COMPUTES else ""
        return self._new(f"{stage}{action}", COMPUTE, self.last, round(self.computed / MICRO) - before), None

    def _message(self, action: Action) -> Made:
        tag = 2 * (action.microbatch * self.config.num_stages + action.stage) + (action.operation == "B")
        is_send, stream = action.kind == "send", f"send {action.peer}"
        after = self.last + ((self.streams[stream],) if is_send and stream in self.streams else ())
        kind = SEND if is_send else RECEIVE
        node = self._new(str(action), kind, after, comm_size=round(action.nbytes), comm_tag=tag)
        if is_send:
            self.streams[stream] = node.id
        if not is_send or not self.overlaps_sends:
            self.last = (node.id,)
        return node, With(is_send, action.peer)

    def _collectives(self, action: Action) -> Iterator[Made]:
        """All of an action, one behind the other; ASTRA-sim counts an all_gather by what each rank brings (Ring.cc).

        What walks around a ring passes over the same ways as an all_gather of it does."""
        after, asked = self.last, "all_gather" if action.kind == "ring" else action.operation
        for part, (number, operation, share) in enumerate(self.groups.parts(action.group, self.rank, asked)):
            name = str(action if operation == asked else action._replace(operation=operation))
            brought = 1 / len(self.groups.ranks[number]) if operation == "all_gather" else 1.0
            for nbytes in sizes(action.nbytes * action.times * share * brought, action.times):
                behind = (self.streams[action.group],) if action.group in self.streams else ()
                of = OPERATIONS[operation]
                node = self._new(name, COLLECTIVE, after + behind, comm_type=of, comm_size=nbytes)
                self.streams[action.group] = node.id
                after = ()
                yield node, With(kind=action.group, operation=asked, part=part)
