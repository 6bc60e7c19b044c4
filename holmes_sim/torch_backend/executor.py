"""Executes the program of one rank, the same that the simulator executes, and records start and end of every action.

Receives are posted ahead of time, so that a message travels when it is sent. Each group of collectives and each direction of
messages has a thread of its own, in order. A send blocks the rank until the message has left, unless the schedule overlaps
sends with compute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend import communication
from holmes_sim.torch_backend.comm_threads import CommThread, Job, ReceiveThread
from holmes_sim.torch_backend.compressed_messages import MessageCode
from holmes_sim.torch_backend.devices import synchronize
from holmes_sim.torch_backend.emulated_worker import EmulatedWorker
from holmes_sim.torch_backend.groups import of_kind
from holmes_sim.torch_backend.rank_in_plan import RankInPlan
from holmes_sim.torch_backend.recorder import Event, Key, Recorder
from holmes_sim.torch_backend.training_worker import TrainingWorker
from sim.kernels import lowering
from sim.plan import schedules
from sim.plan.groups import GRADIENT_KINDS
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.program import BESIDE, COMPUTE, Action, Program

LAYER_GROUPS = ("tp", "cp", "etp", "ep")
"""Kinds of groups whose collectives run inside the layers of a stage."""


@dataclass(slots=True)
class _PostedReceive:
    """A posted receive and, once it is posted, its buffer."""

    job: Job
    buffers: list[Tensor]
    key: Key


class Executor:
    """Executor of one rank: its program, its worker (which computes, or emulates compute) and its communication threads."""

    def __init__(
        self,
        plan: Plan | PipelinesPlan,
        rank: int,
        groups: dict[str, dist.ProcessGroup],
        worker: TrainingWorker | EmulatedWorker,
        recorder: Recorder,
    ):
        place = self.place = RankInPlan.of(plan, rank)
        self.plan, self.config, self.rank, self.groups = place.plan, place.plan.config, place.rank, groups
        self.worker, self.recorder = worker, recorder
        self.tp, self.dp_cp, self.pp_rank = self.config.coordinates(self.rank)
        self.code = MessageCode(self.plan, self.pp_rank) if isinstance(worker, TrainingWorker) else None
        microbatches = self.config.microbatches_of(self.dp_cp, self.pp_rank)
        program = lowering.program(self.plan, self.pp_rank, microbatches, place.sections)
        self.program: Program = tuple(beside_products(program, worker))
        self.in_backward = in_backward(self.program)
        self.overlaps = schedules.get(self.config.schedule).OVERLAPS_SENDS
        self.threads: dict[tuple[str | int, ...], CommThread] = {}
        self.receive_threads: dict[tuple[int, str], ReceiveThread] = {}
        self.pipelines = of_kind(groups, "pp")
        self.counts: dict[tuple[str, str, tuple[int, ...]], int] = {}
        self.posted: dict[tuple[str, int, int], list[_PostedReceive]] = {}
        self.started: dict[tuple[int, str, str, int], list[tuple[Job, Key]]] = {}
        self.sent: list[tuple[Action, Job, Key]] = []
        self.received: list[tuple[Action, Job, Key]] = []
        self.collectives: list[tuple[Action, float, Job, Key]] = []

    def step(self) -> list[Event]:
        """Execute the program once. Returns the recorded events."""
        self.counts.clear()
        self.recorder.events = []
        for action in self.program:
            if action.kind == "recv":
                self._post_receive(action)
        for action, backward in zip(self.program, self.in_backward, strict=True):
            self._execute(action, backward)
        for action, job, key in self.sent:
            job.wait()
            self.recorder.comm(_lane(action), "send", action, "pp", job.started, job.ended, key)
        for action, job, key in self.received:
            self.recorder.comm(_lane(action), "recv", action, "pp", job.started, job.ended, key)
        for action, issued, job, key in self.collectives:
            job.wait()
            self.recorder.comm(_lane(action), "collective", action, action.group, max(issued, job.started), job.ended, key)
        for held in (self.sent, self.received, self.collectives):
            held.clear()
        return self.recorder.events

    def close(self) -> None:
        """End the communication threads."""
        for thread in (*self.threads.values(), *self.receive_threads.values()):
            thread.close()

    def _thread(self, *name: str | int) -> CommThread:
        if name not in self.threads:
            self.threads[name] = CommThread(" ".join(map(str, name)), self.worker.device)
        return self.threads[name]

    def _execute(self, action: Action, backward: bool) -> None:
        if action.kind in (*COMPUTE, *BESIDE, "optimizer"):
            self.recorder.begin(action)
            self.worker.compute(action)
            self.recorder.end()
        elif action.kind == "send":
            self._send(action)
        elif action.kind == "recv":
            self._receive(action)
        elif action.kind == "start":
            self._start(action, backward)
        elif action.kind == "wait":
            self._await(action, self.started.pop((action.stage, action.group, action.operation, action.part)))
        elif action.group in LAYER_GROUPS:
            self._layer_collective(action)
        else:
            self._start(action._replace(part=-1), backward)
            self._await(action, self.started.pop((action.stage, action.group, action.operation, -1)))

    # messages

    def _messages(self, action: Action) -> list[tuple[dist.ProcessGroup, int, Key]]:
        """The messages of a send or recv, one for each peer (`ParallelConfig.peers`): a group that has both ends, the peer's
        position in it, and the key: ends, direction, stage and microbatch."""
        found: list[tuple[dist.ProcessGroup, int, Key]] = []
        own, first = self.place.first + self.rank, self.place.first
        for peer in (first + one for one in self.config.peers(self.rank, action.peer)):
            source, target = (own, peer) if action.kind == "send" else (peer, own)
            key = "pp", source, target, action.operation, action.stage, action.microbatch
            every = ((group, dist.get_process_group_ranks(group)) for group in self.pipelines)
            found.append(next((group, ranks.index(peer), key) for group, ranks in every if peer in ranks))
        return found

    def _tag(self, action: Action) -> int:
        most = max(self.config.num_microbatches) * max(map(self.config.cuts_of, range(self.config.pp)))
        return 2 * (action.stage * most + action.microbatch) + int(action.operation == "B")

    def _post_receive(self, action: Action) -> None:
        posted = [self._posted(action, *message) for message in self._messages(action)]
        self.posted[action.operation, action.stage, action.microbatch] = posted
        self.received += [(action, one.job, one.key) for one in posted]

    def _posted(self, action: Action, group: dist.ProcessGroup, peer: int, key: Key) -> _PostedReceive:
        """Post the receive of one message."""
        buffers: list[Tensor] = []

        def post() -> Callable[[], None]:
            whole = self.worker.receive_buffer(action)
            buffers.append(self.code.buffer(action, whole) if self.code else whole)
            return communication.receive(buffers[0], group, peer, self._tag(action))

        name = int(key[1]), action.operation
        if name not in self.receive_threads:
            self.receive_threads[name] = ReceiveThread(f"recv {key[1]} {action.operation}", self.worker.device)
        return _PostedReceive(self.receive_threads[name].enqueue(post), buffers, key)

    def _receive(self, action: Action) -> None:
        posted = self.posted.pop((action.operation, action.stage, action.microbatch))
        since = time.perf_counter()
        for one in posted:
            one.job.wait()
        values = [one.buffers[0] for one in posted]
        if self.code:
            values = [self.code.decode(action, value, self.worker.receive_buffer(action)) for value in values]
        self.worker.receive(action, values)
        last = max(posted, key=lambda one: one.job.ended)
        self.recorder.wait(action, "pp", since, time.perf_counter(), last.key)

    def _send(self, action: Action) -> None:
        messages = self._messages(action)
        values = self.worker.send_values(action, len(messages))
        values, since = [self.code.encode(action, value) for value in values] if self.code else values, time.perf_counter()
        jobs = [self._sending(action, value, *message) for value, message in zip(values, messages, strict=True)]
        self.sent += [(action, job, key) for job, (_, _, key) in zip(jobs, messages, strict=True)]
        if not self.overlaps:
            for job in jobs:
                job.wait()
            _, key = max(((job.ended, key) for job, (_, _, key) in zip(jobs, messages, strict=True)), key=lambda one: one[0])
            self.recorder.wait(action, "pp", since, time.perf_counter(), key)

    def _sending(self, action: Action, value: Tensor, group: dist.ProcessGroup, peer: int, key: Key) -> Job:
        """Send one message, on the thread of its peer and direction."""
        tag = self._tag(action)
        return self._thread("send", int(key[2]), action.operation).submit(lambda: communication.send(value, group, peer, tag))

    # collectives

    def _key(self, group: str, lane: str, among: dist.ProcessGroup) -> Key:
        """Key of a collective `among` ranks: its group, lane, these ranks and the number of collectives before it.

        Of a tied embedding the first rank only: where several ranks hold one part each of its weights, their sums are one."""
        ranks = tuple(sorted(dist.get_process_group_ranks(among)))[: 1 if group == "embedding" else None]
        count = self.counts.get((group, lane, ranks), 0)
        self.counts[group, lane, ranks] = count + 1
        return group, lane, *ranks, count

    def _start(self, action: Action, backward: bool) -> None:
        of_section = (action.section,) if action.group in GRADIENT_KINDS and self.place.sections else ()
        name, issued, started = " ".join(map(str, (action.group, *of_section))), time.perf_counter(), []
        names = self.place.groups_of(action.group, action.section)
        for own, work in zip(names, works(self.worker, action, backward), strict=True):
            started.append((self._thread(own, *of_section).submit(work), self._key(name, "beside", self.groups[own])))
        self.collectives += [(action, issued, job, key) for job, key in started]
        self.started[action.stage, action.group, action.operation, action.part] = started

    def _await(self, action: Action, started: list[tuple[Job, Key]]) -> None:
        since = time.perf_counter()
        for job, _ in started:
            job.wait()
        job, key = max(started, key=lambda one: one[0].ended)
        self.recorder.wait(action, action.group, since, time.perf_counter(), key)

    def _layer_collective(self, action: Action) -> None:
        """Execute a collective of tp, etp or ep ranks in the program, where compute does not contain it.

        A training worker runs these collectives inside its layers, except the gather of a received message. An emulated worker
        runs those that the durations of compute do not include.
        """
        if isinstance(self.worker, TrainingWorker):
            if action.group == "tp" and action.operation == "all_gather" and not self.config.sequence_parallel:
                self.worker.gather_received()
        elif not self.worker.includes(action):
            (work,) = self.worker.collectives(action)
            self.timed_collective(action.group, action.operation, action.nbytes, work)

    def timed_collective(self, group: str, name: str, nbytes: float, work: Callable[[], None]) -> None:
        """Execute a collective of the rank's tp, etp or ep group and record it."""
        synchronize(self.worker.device)
        key, since = self._key(group, "within", self.groups[group]), time.perf_counter()
        work()
        synchronize(self.worker.device)
        self.recorder.layer_collective(group, name, since, time.perf_counter(), key)


def _lane(action: Action) -> str:
    """The timeline lane of a message or collective."""
    if action.kind in ("send", "recv"):
        return "send" if action.operation == "F" else "return"
    return "dp" if action.group == "embedding" else action.group


def works(worker: TrainingWorker | EmulatedWorker, action: Action, backward: bool) -> list[Callable[[], None]]:
    """Functions that execute a collective of data-parallel ranks or of a tied embedding, one for each slice of the weights that
    the rank has."""
    if isinstance(worker, EmulatedWorker):
        return worker.collectives(action)
    return [worker.reduce_tied_embedding] if action.group == "embedding" else worker.dp_collectives(action, backward)


def beside_products(program: Program, worker: TrainingWorker | EmulatedWorker) -> Iterator[Action]:
    """A program whose collectives beside products start and are waited for. An emulated worker sleeps between the two; a
    training worker runs them inside its layers."""
    for action in program:
        if action.kind not in BESIDE:
            yield action
        elif isinstance(worker, EmulatedWorker):
            started = action._replace(kind="start", operation=BESIDE[action.kind])
            yield from (action,) if worker.includes(action) else (started, action, started._replace(kind="wait"))


def in_backward(program: Program) -> list[bool]:
    """For each action of a rank's program, whether it is a collective of a backward, where buckets are counted from the last
    layer.

    An all_gather belongs to the compute action after it. Reductions of gradients always belong to a backward.
    """
    found, following = [], False
    for action in reversed(program):
        following = action.kind in ("B", "W") if action.kind in COMPUTE else following
        found.append(following if action.operation == "all_gather" else action.operation in ("reduce_scatter", "all_reduce"))
    return found[::-1]
