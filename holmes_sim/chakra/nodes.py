"""A rank's program as nodes that wait for one another: what the engine plays (`sim.engine`), with the same seconds of compute.

Compute, blocking collectives and receives stand one behind the other in the order of the program. A collective that goes on
behind the compute waits for what stands before it and for the one before it in its group, and what waits for it in the program
waits for it here. Messages to one peer leave in order, and hold the sender unless the schedule overlaps them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holmes_sim.chakra.groups import Groups
from holmes_sim.chakra.protobuf import COLLECTIVE, COMPUTE, OPERATIONS, RECEIVE, SEND, Node
from sim import lowering, schedules
from sim.durations import Durations
from sim.plan import Plan
from sim.program import COMPUTE as COMPUTES
from sim.program import Action
from sim.units import MICRO, Bytes, Seconds


def of_rank(plan: Plan, rank: int, groups: Groups, durations: Durations) -> Iterator[Node]:
    """The nodes of a rank, in the order of its program."""
    _, dp_cp, place = plan.config.place(rank)
    program = lowering.program(plan, place, plan.config.microbatches_of(dp_cp))
    writer = _Writer(plan, rank, groups, durations)
    for action in program:
        yield from writer.nodes(action)


def sizes(total: Bytes, count: float) -> list[int]:
    """A payload in as many whole parts as collectives are told of (at least one), which add up to it, rounded."""
    number = max(1, round(count))
    ends = [round(total * index / number) for index in range(number + 1)]
    return [after - before for before, after in pairwise(ends)]


class _Writer:
    """The state of a rank: ids so far, what the next node waits for, and the last node of every stream."""

    def __init__(self, plan: Plan, rank: int, groups: Groups, durations: Durations):
        self.plan, self.config, self.rank, self.groups, self.durations = plan, plan.config, rank, groups, durations
        self.overlaps_sends = schedules.get(plan.config.schedule).OVERLAPS_SENDS
        self.count = 0
        self.last: tuple[int, ...] = ()
        self.streams: dict[str, int] = {}
        self.started: dict[tuple[int, str, str, int], int] = {}
        self.computed: Seconds = 0.0

    def nodes(self, action: Action) -> Iterator[Node]:
        """The nodes of an action."""
        if action.kind in ("send", "recv"):
            yield self._message(action)
        elif action.kind == "wait":
            self.last += (self.started[action.stage, action.group, action.operation, action.part],)
        elif action.kind == "start":
            found = list(self._collectives(action))
            self.started[action.stage, action.group, action.operation, action.part] = found[-1].id
            yield from found
        elif action.kind == "ring":
            found = list(self._collectives(action))
            yield from found
            compute = self._compute(action)
            self.last = (compute.id, found[-1].id)
            yield compute
        elif action.kind != "collective":
            node = self._compute(action)
            self.last = (node.id,)
            yield node
        elif not self.durations.include(self.rank, action):
            for node in self._collectives(action):
                self.last = (node.id,)
                yield node

    def _new(self, name: str, kind: int, after: tuple[int, ...], microseconds: int, **attributes: bool | int | str) -> Node:
        self.count += 1
        found = {"is_cpu_op": False} | attributes
        return Node(self.count, name, kind, tuple(sorted(set(after))), microseconds, tuple(found.items()))

    def _compute(self, action: Action) -> Node:
        """Whole microseconds, such that those of a rank add up to its seconds."""
        before = round(self.computed / MICRO)
        self.computed += self.durations.of(self.rank, action)
        stage = f"{action.stage}" if self.config.vpp > 1 and action.kind in COMPUTES else ""
        return self._new(f"{stage}{action}", COMPUTE, self.last, round(self.computed / MICRO) - before)

    def _message(self, action: Action) -> Node:
        tp, dp_cp, _ = self.config.place(self.rank)
        peer = self.config.rank(tp, dp_cp, action.peer)
        tag = 2 * (action.microbatch * self.config.num_stages + action.stage) + (action.operation == "B")
        is_send = action.kind == "send"
        ends = (self.rank, peer) if is_send else (peer, self.rank)
        stream = f"send {peer}"
        after = self.last + ((self.streams[stream],) if is_send and stream in self.streams else ())
        node = self._new(
            str(action), SEND if is_send else RECEIVE, after, 0,
            comm_size=round(action.nbytes), comm_src=ends[0], comm_dst=ends[1], comm_tag=tag,
        )  # fmt: skip
        if is_send:
            self.streams[stream] = node.id
        if not is_send or not self.overlaps_sends:
            self.last = (node.id,)
        return node

    def _collectives(self, action: Action) -> Iterator[Node]:
        """All of an action, one behind the other; ASTRA-sim counts an all_gather by what each rank brings (Ring.cc).

        What walks around a ring passes over the same ways as an all_gather of it does."""
        after, asked = self.last, "all_gather" if action.kind == "ring" else action.operation
        for number, operation, share in self.groups.parts(action.group, self.rank, asked):
            name = str(action if operation == asked else action._replace(operation=operation))
            brought = 1 / len(self.groups.ranks[number]) if operation == "all_gather" else 1.0
            for nbytes in sizes(action.nbytes * action.times * share * brought, action.times):
                behind = (self.streams[action.group],) if action.group in self.streams else ()
                node = self._new(
                    name, COLLECTIVE, after + behind, 0,
                    comm_type=OPERATIONS[operation], comm_size=nbytes, pg_name=str(number),
                )  # fmt: skip
                self.streams[action.group] = node.id
                after = ()
                yield node
