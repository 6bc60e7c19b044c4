"""The program of a rank as a graph of Chakra nodes, with the compute times of `sim.engine`.

Compute, blocking collectives and receives form a chain in the order of the program. A collective that overlaps compute depends
on the node before it in the program and on the previous collective of its group; an action that waits for it in the program
depends on it here. Messages to one peer are sent in order, and block the sender unless the schedule overlaps sends.

Ranks with the same program on the same devices have the same nodes except for their peers. So nodes are made once per class of
ranks, and peers are filled in for each rank.
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
from sim.plan.program import BESIDE, Action
from sim.plan.program import COMPUTE as COMPUTES
from sim.units import MICRO, Bytes, Seconds

RankClass: TypeAlias = tuple[int, int, tuple[str, ...]]
"""Pipeline rank, number of microbatches, and the clusters of the tensor-parallel ranks, the rank's own first."""


class Peer(NamedTuple):
    """The peer of a node in a form that is the same for all ranks of a class: a pipeline rank, or a part of a group's
    collective.
    """

    is_source: bool = False
    pp_rank: int = -1
    kind: str = ""
    operation: str = ""
    part: int = 0


class Traces:
    """The traces of all ranks of a plan."""

    def __init__(self, plan: Plan):
        self.plan, self.config, self.groups, self._durations = plan, plan.config, Groups(plan), Durations(plan)
        self._made: dict[RankClass, list[tuple[Node, bytes, Peer | None]]] = {}

    def nodes(self, rank: int) -> list[Node]:
        """The nodes of a rank, in the order of its program."""
        return [
            node if peer is None else node._replace(attributes=node.attributes + self._peer_attributes(rank, peer))
            for node, _, peer in self._of_class(rank)
        ]

    def trace(self, rank: int) -> bytes:
        """The trace file of a rank, as bytes."""
        found: dict[Peer | None, bytes] = {None: b""}
        pieces = [protobuf.metadata()]
        for _, head, peer in self._of_class(rank):
            if peer not in found:
                found[peer] = protobuf.attributes(self._peer_attributes(rank, peer)) if peer else b""
            pieces.append(protobuf.delimited(head + found[peer]))
        return b"".join(pieces)

    def _of_class(self, rank: int) -> list[tuple[Node, bytes, Peer | None]]:
        """Nodes of the class of a rank: (node without peer, its encoding, its peer)."""
        tp, dp_cp, pp_rank = self.config.coordinates(rank)
        members = (rank, *(self.config.rank(other, dp_cp, pp_rank) for other in range(self.config.tp) if other != tp))
        clusters = tuple(self.plan.placement[member].cluster for member in members)
        key = pp_rank, self.config.microbatches_of(dp_cp, pp_rank), clusters
        if key not in self._made:
            writer = _Writer(self.plan, rank, self.groups, self._durations)
            program = lowering.program(self.plan, *key[:2])
            made = [pair for action in program for pair in writer.nodes(action)]
            self._made[key] = [(node, protobuf.encoded(node), peer) for node, peer in made]
        return self._made[key]

    def _peer_attributes(self, rank: int, peer: Peer) -> Attributes:
        """Attributes of a node that name its peer: the group, or source and target of a message."""
        if peer.kind:
            return (("pg_name", str(self.groups.parts(peer.kind, rank, peer.operation)[peer.part][0])),)
        tp, dp_cp, _ = self.config.coordinates(rank)
        other = self.config.rank(tp, dp_cp, peer.pp_rank)
        source, target = (rank, other) if peer.is_source else (other, rank)
        return (("comm_src", source), ("comm_dst", target))


def sizes(total: Bytes, count: float) -> list[int]:
    """A payload divided into `count` parts (rounded, at least one) of whole bytes whose sum is the rounded payload."""
    number = max(1, round(count))
    ends = [round(total * index / number) for index in range(number + 1)]
    return [after - before for before, after in pairwise(ends)]


NodeAndPeer: TypeAlias = tuple[Node, Peer | None]


class _Writer:
    """Turns actions into nodes. State: the last id, the nodes that the next node depends on, and the last node of each
    stream.
    """

    def __init__(self, plan: Plan, rank: int, groups: Groups, durations: Durations):
        self.config, self.rank, self.groups, self.durations = plan.config, rank, groups, durations
        self.overlaps_sends = schedules.get(plan.config.schedule).OVERLAPS_SENDS
        self.count = 0
        self.last: tuple[int, ...] = ()
        self.streams: dict[str, int] = {}
        self.started: dict[tuple[int, str, str, int], int] = {}
        self.computed: Seconds = 0.0

    def nodes(self, action: Action) -> Iterator[NodeAndPeer]:
        """The nodes of an action."""
        if action.kind in ("send", "recv"):
            yield self._message(action)
        elif action.kind == "wait":
            self.last += (self.started[action.stage, action.group, action.operation, action.part],)
        elif action.kind == "start":
            yield from self._collectives(action)
            self.started[action.stage, action.group, action.operation, action.part] = self.count
        elif action.kind in BESIDE and not self.durations.include(self.rank, action):
            yield from self._collectives(action)
            gathered = self.count
            yield self._compute(action)
            self.last = (gathered, self.count)
        elif action.kind != "collective":
            yield self._compute(action)
            self.last = (self.count,)
        elif not self.durations.include(self.rank, action):
            yield from self._collectives(action)
            self.last = (self.count,)

    def _new(self, name: str, kind: int, after: tuple[int, ...], microseconds: int = 0, **more: bool | int | str) -> Node:
        """A node with the next id."""
        self.count += 1
        return Node(self.count, name, kind, tuple(sorted(set(after))), microseconds, (("is_cpu_op", False), *more.items()))

    def _compute(self, action: Action) -> NodeAndPeer:
        """A compute node. Times are whole microseconds, rounded such that the sum over a rank is its total time."""
        before = round(self.computed / MICRO)
        self.computed += self.durations.of(self.rank, action)
        stage = f"{action.stage}" if self.config.vpp > 1 and action.kind in COMPUTES else ""
        return self._new(f"{stage}{action}", COMPUTE, self.last, round(self.computed / MICRO) - before), None

    def _message(self, action: Action) -> NodeAndPeer:
        """The node of a send or receive."""
        tag = 2 * (action.microbatch * self.config.num_stages + action.stage) + (action.operation == "B")
        is_send, stream = action.kind == "send", f"send {action.peer}"
        after = self.last + ((self.streams[stream],) if is_send and stream in self.streams else ())
        kind = SEND if is_send else RECEIVE
        node = self._new(str(action), kind, after, comm_size=round(action.nbytes), comm_tag=tag)
        if is_send:
            self.streams[stream] = node.id
        if not is_send or not self.overlaps_sends:
            self.last = (node.id,)
        return node, Peer(is_send, action.peer)

    def _collectives(self, action: Action) -> Iterator[NodeAndPeer]:
        """All nodes of a collective, in a chain. ASTRA-sim counts the size of an all_gather as the bytes that each rank
        contributes (Ring.cc).

        The exchange around a ring becomes an all_gather, which sends the same messages over the same links.
        """
        travels = BESIDE.get(action.kind, action.operation)
        after, requested = self.last, "all_gather" if travels == "send_recv" else travels
        for part, (number, operation, share) in enumerate(self.groups.parts(action.group, self.rank, requested)):
            name = str(action if operation == requested else action._replace(operation=operation))
            contributed = 1 / len(self.groups.ranks[number]) if operation == "all_gather" else 1.0
            for nbytes in sizes(action.nbytes * action.times * share * contributed, action.times):
                after_stream = (self.streams[action.group],) if action.group in self.streams else ()
                of = OPERATIONS[operation]
                node = self._new(name, COLLECTIVE, after + after_stream, comm_type=of, comm_size=nbytes)
                self.streams[action.group] = node.id
                after = ()
                yield node, Peer(kind=action.group, operation=requested, part=part)
