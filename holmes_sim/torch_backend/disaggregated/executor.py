"""Executes the tasks of one rank of a plan with two sets of ranks, and records them.

Compute runs in the calling thread. Dispatches and combines have a thread each, which execute them in the order of
`sim.disaggregation.tasks`: an exchange begins when the tasks of this rank that it depends on have ended, and ranks wait for
each other in it. Each set waits for the other through these exchanges alone, as in the simulation. A combine also waits for its
dispatch on this rank, which says how many results there are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from holmes_sim.torch_backend.comm_threads import CommThread, Job
from holmes_sim.torch_backend.disaggregated.paced_worker import SetPacedWorker
from holmes_sim.torch_backend.disaggregated.set_rank import SetRank
from holmes_sim.torch_backend.disaggregated.training_worker import SetTrainingWorker
from holmes_sim.torch_backend.recorder import Event, Key
from sim.disaggregation.set_groups import COMBINE, DISPATCH
from sim.disaggregation.tasks import Task, tasks
from sim.units import Seconds

LANES = {DISPATCH: "send", COMBINE: "return"}
"""Stream of exchanges -> its lane in timelines, as `sim.results.disaggregated_timeline` has it."""


class SetExecutor:
    """The tasks of a rank, its worker and its threads."""

    def __init__(self, place: SetRank, worker: SetTrainingWorker | SetPacedWorker):
        stage = place.stage
        self.place, self.worker = place, worker
        self.tasks = tasks(stage.kept, stage.microbatches, stage.rounds)
        self.threads = {stream: CommThread(stream, worker.device) for stream in (DISPATCH, COMBINE)}
        self.events: list[Event] = []
        self._dispatches = {
            (task.backward, task.layer, task.microbatch, task.round): number
            for number, task in enumerate(self.tasks)
            if task.stream == DISPATCH
        }
        self._ended: dict[int, threading.Event] = {}
        self._jobs: dict[int, Job] = {}
        self._times: dict[int, tuple[Seconds, Seconds]] = {}

    def step(self) -> list[Event]:
        """Execute one step. Returns the recorded events."""
        self.events, self._times = [], {}
        own = [number for number, task in enumerate(self.tasks) if task.stream == self.place.set_name]
        self._ended = {number: threading.Event() for number in own}
        self._jobs = {}
        for number, task in enumerate(self.tasks):
            if task.stream in self.threads:
                self._jobs[number] = self.threads[task.stream].submit(self._exchange(number))
        for number in own:
            self._compute(number)
        for job in self._jobs.values():
            job.wait()
        for number in self._jobs:
            self._record_exchange(number)
        self.worker.finish(self._timed)
        return self.events

    def close(self) -> None:
        """End the threads."""
        for thread in self.threads.values():
            thread.close()

    def _exchange(self, number: int) -> Callable[[], None]:
        """A function that waits for the compute of this rank that an exchange depends on, then executes it."""
        task = self.tasks[number]

        def work() -> None:
            for other in task.after:
                if other in self._ended:
                    self._ended[other].wait()
            if task.stream == COMBINE:
                self._jobs[self._dispatches[task.backward, task.layer, task.microbatch, task.round]].wait()
            begin = time.perf_counter()
            self.worker.exchange(task)
            self._times[number] = begin, time.perf_counter()

        return work

    def _compute(self, number: int) -> None:
        """Wait for the exchanges that a task of compute depends on, and execute it."""
        task = self.tasks[number]
        for other in task.after:
            since = time.perf_counter()
            self._jobs[other].wait()
            named = str(self.tasks[other])
            self.events.append(
                Event("wait", "wait", named, "exposed", since, time.perf_counter(), -1, -1, "ep", self._key(other))
            )
        begin = time.perf_counter()
        self.worker.compute(task)
        self.events.append(
            Event(
                "compute", "compute", str(task), "B" if task.backward else "F", begin, time.perf_counter(),
                self.place.set_number, self._microbatch(task), "", (),
            )
        )  # fmt: skip
        self._ended[number].set()

    def _record_exchange(self, number: int) -> None:
        task, (begin, end) = self.tasks[number], self._times[number]
        labels = self.place.set_number, self._microbatch(task), "ep", self._key(number)
        self.events.append(Event("comm", LANES[task.stream], f"{task.stream} {task}", "send", begin, end, *labels))

    def _key(self, number: int) -> Key:
        return "ep", self.place.group, number

    def _microbatch(self, task: Task) -> int:
        return task.round * self.place.stage.microbatches + task.microbatch

    def _timed(self, group: str, name: str, work: Callable[[], None]) -> None:
        """Run and record a collective, or the optimizer, at the end of the step."""
        begin = time.perf_counter()
        work()
        end = time.perf_counter()
        if group == "optimizer":
            self.events.append(Event("compute", "compute", name, "optimizer", begin, end, -1, -1, "", ()))
            return
        number = sum(event.what == "comm" and event.group == group for event in self.events)
        first = 0 if group == "dp" else self.place.members(0)[self.place.in_group]
        key: Key = group, first, number
        text = f"{group} {name}"
        self.events.append(Event("comm", group, text, "collective", begin, end, -1, -1, group, key))
        self.events.append(Event("wait", "wait", text, "exposed", begin, end, -1, -1, group, key))
