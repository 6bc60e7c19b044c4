"""Plays one rank's program, the same that the engine plays, and notes when everything began and ended.

Receives are posted ahead, so that a message travels when it is sent and not when it is asked for. Gradients and weights travel
in a lane of their own, in order. A send holds its rank until it has left, unless the schedule overlaps it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend import exchanges
from holmes_sim.torch_backend.devices import settle
from holmes_sim.torch_backend.lanes import Inbox, Job, Lane
from holmes_sim.torch_backend.paced import Paced
from holmes_sim.torch_backend.real import Real
from holmes_sim.torch_backend.recorder import Key, Note, Recorder
from sim.kernels import lowering
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.plan.program import COMPUTE, Action, Program


@dataclass(slots=True)
class _Expected:
    """A message that will come, and where it lies then."""

    job: Job
    came: list[Tensor]


class Player:
    """One rank: its program, its body (which computes or waits), its lanes."""

    def __init__(self, plan: Plan, rank: int, groups: dict[str, dist.ProcessGroup], body: Real | Paced, recorder: Recorder):
        self.plan, self.config, self.rank, self.groups = plan, plan.config, rank, groups
        self.body, self.recorder = body, recorder
        self.tp, self.dp_cp, self.place = plan.config.place(rank)
        self.program: Program = lowering.program(plan, self.place, plan.config.microbatches_of(self.dp_cp))
        self.ways = _ways(self.program)
        self.overlaps = schedules.get(plan.config.schedule).OVERLAPS_SENDS
        self.lanes: dict[tuple[str | int, ...], Lane] = {}
        self.inboxes: dict[tuple[int, str], Inbox] = {}
        self.turns: dict[tuple[str, str], int] = {}
        self.expected: dict[tuple[str, int, int], _Expected] = {}
        self.started: dict[tuple[int, str, str, int], tuple[Job, Key]] = {}
        self.sent: list[tuple[Action, Job]] = []
        self.arrivals: list[tuple[Action, Job]] = []
        self.collectives: list[tuple[Action, float, Job, Key]] = []

    def step(self) -> list[Note]:
        """Play the program once, and return what was noted."""
        self.turns.clear()
        self.recorder.notes = []
        for action in self.program:
            if action.kind == "recv":
                self._expect(action)
        for action, backward in zip(self.program, self.ways, strict=True):
            self._play(action, backward)
        for action, job in self.sent:
            job.wait()
            self.recorder.comm(_lane(action), "send", action, "pp", job.started, job.ended, self._message(action))
        for action, job in self.arrivals:
            self.recorder.comm(_lane(action), "recv", action, "pp", job.started, job.ended, self._message(action))
        for action, came, job, key in self.collectives:
            job.wait()
            self.recorder.comm(_lane(action), "collective", action, action.group, max(came, job.started), job.ended, key)
        for held in (self.sent, self.arrivals, self.collectives):
            held.clear()
        return self.recorder.notes

    def close(self) -> None:
        """End the lanes."""
        for lane in (*self.lanes.values(), *self.inboxes.values()):
            lane.close()

    def _in_lane(self, *name: str | int) -> Lane:
        if name not in self.lanes:
            self.lanes[name] = Lane(" ".join(map(str, name)), self.body.device)
        return self.lanes[name]

    def _play(self, action: Action, backward: bool) -> None:
        if action.kind in COMPUTE or action.kind == "optimizer":
            self.recorder.begin(action)
            self.body.compute(action)
            self.recorder.end()
        elif action.kind == "send":
            self._send(action)
        elif action.kind == "recv":
            self._receive(action)
        elif action.kind == "start":
            self._start(action, backward)
        elif action.kind == "wait":
            job, key = self.started.pop((action.stage, action.group, action.operation, action.part))
            self._await(action, job, key)
        elif action.group == "tp":
            self._within(action)
        else:
            self._start(action._replace(part=-1), backward)
            job, key = self.started.pop((action.stage, action.group, action.operation, -1))
            self._await(action, job, key)

    # messages

    def _message(self, action: Action) -> Key:
        """What tells a message from others: its ends, its way, stage and microbatch."""
        peer = self.config.rank(self.tp, self.dp_cp, action.peer)
        source, target = (self.rank, peer) if action.kind == "send" else (peer, self.rank)
        return "pp", source, target, action.operation, action.stage, action.microbatch

    def _tag(self, action: Action) -> int:
        return 2 * (action.stage * max(self.config.num_microbatches) + action.microbatch) + int(action.operation == "B")

    def _expect(self, action: Action) -> None:
        group, tag = self.groups["pp"], self._tag(action)
        came: list[Tensor] = []

        def ask() -> Callable[[], None]:
            came.append(self.body.room(action))
            return exchanges.receive(came[0], group, action.peer, tag)

        name = action.peer, action.operation
        if name not in self.inboxes:
            self.inboxes[name] = Inbox(f"recv {action.peer} {action.operation}", self.body.device)
        job = self.inboxes[name].expect(ask)
        self.expected[action.operation, action.stage, action.microbatch] = _Expected(job, came)
        self.arrivals.append((action, job))

    def _receive(self, action: Action) -> None:
        expected = self.expected.pop((action.operation, action.stage, action.microbatch))
        since = time.perf_counter()
        expected.job.wait()
        self.body.take(action, expected.came[0])
        self.recorder.wait(action, "pp", since, time.perf_counter(), self._message(action))

    def _send(self, action: Action) -> None:
        group, value, tag = self.groups["pp"], self.body.outgoing(action), self._tag(action)

        def send() -> None:
            exchanges.send(value, group, action.peer, tag)

        since = time.perf_counter()
        job = self._in_lane("send", action.peer, action.operation).do(send)
        self.sent.append((action, job))
        if not self.overlaps:
            job.wait()
            self.recorder.wait(action, "pp", since, time.perf_counter(), self._message(action))

    # collectives

    def _turn(self, group: str, lane: str) -> Key:
        """What tells a collective from others of its group: how many there were before it."""
        turn = self.turns.get((group, lane), 0)
        self.turns[group, lane] = turn + 1
        first = min(dist.get_process_group_ranks(self.groups[group]))
        return group, lane, first, turn

    def _start(self, action: Action, backward: bool) -> None:
        key, came = self._turn(action.group, "beside"), time.perf_counter()
        job = self._in_lane(action.group).do(self._work(action, backward))
        self.collectives.append((action, came, job, key))
        self.started[action.stage, action.group, action.operation, action.part] = job, key

    def _work(self, action: Action, backward: bool) -> Callable[[], None]:
        if isinstance(self.body, Paced):
            return self.body.exchange(action)
        return self.body.tie if action.group == "embedding" else self.body.travelling(action, backward)

    def _await(self, action: Action, job: Job, key: Key) -> None:
        since = time.perf_counter()
        job.wait()
        self.recorder.wait(action, action.group, since, time.perf_counter(), key)

    def _within(self, action: Action) -> None:
        """An exchange of tensor-parallel ranks: within the compute, unless it joins a message or the compute was waited for."""
        if isinstance(self.body, Real):
            if action.operation == "all_gather" and not self.config.sequence_parallel:
                self.body.join()
        elif not self.body.include(action):
            self.told(action.operation, action.nbytes, self.body.exchange(action))

    def told(self, name: str, nbytes: float, work: Callable[[], None]) -> None:
        """Do an exchange of tensor-parallel ranks, and note it."""
        settle(self.body.device)
        key, since = self._turn("tp", "within"), time.perf_counter()
        work()
        settle(self.body.device)
        self.recorder.within(name, since, time.perf_counter(), key)


def _lane(action: Action) -> str:
    """The timeline's lane of a message or collective."""
    if action.kind in ("send", "recv"):
        return "send" if action.operation == "F" else "return"
    return "dp" if action.group == "embedding" else action.group


def _ways(program: Program) -> list[bool]:
    """Whether each action belongs to a backward: buckets are counted from the last layer there. What stands before a compute
    action belongs to it, gradients to the backward before them."""
    found, following = [], False
    for action in reversed(program):
        following = action.kind in ("B", "W") if action.kind in COMPUTE else following
        found.append(following if action.operation == "all_gather" else action.operation in ("reduce_scatter", "all_reduce"))
    return found[::-1]
