"""Discrete-event simulation of a step with attention and experts on two sets of ranks, with shared links.

Each stream is a SimPy process that runs its tasks in order, each after those that it depends on. An exchange is a flow over all
links of its group (`sim.network.sharing`): dispatch and combine share links max-min fairly where they meet, and are as fast as
their busiest link lets them. Where nothing meets, the times are those of `sim.disaggregation.timetable`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

import numpy as np
import simpy

from sim.disaggregation.costs import TaskCosts
from sim.disaggregation.stage import DisaggregatedStage
from sim.disaggregation.tasks import STREAMS, Task, tasks
from sim.network.sharing import Network, Use
from sim.units import Seconds

DIGITS = 12
"""Digits to which the loads of two links are equal if sums in another order explain the difference."""
Process: TypeAlias = Generator[simpy.Event, Any, None]


class _Simulation:
    """One simulation: the clock, the network, and an event for the end of each task."""

    def __init__(self, stage: DisaggregatedStage):
        self.stage, self.costs = stage, TaskCosts(stage)
        self.tasks = tasks(stage.kept, stage.microbatches, stage.rounds)
        self.env = simpy.Environment()
        self._uses = _uses(self.costs)
        self.network = Network(self.env, [1.0] * len(self.costs.exchange.links))
        self.ended = [self.env.event() for _ in self.tasks]
        self.times: list[tuple[Seconds, Seconds]] = [(0.0, 0.0)] * len(self.tasks)

    def run(self) -> list[tuple[Seconds, Seconds]]:
        """(begin, end) of each task."""
        for stream in dict.fromkeys(STREAMS.values()):
            self.env.process(self._stream(stream))
        self.env.run()
        return self.times

    def _stream(self, stream: str) -> Process:
        for number, task in enumerate(self.tasks):
            if task.stream != stream:
                continue
            for other in task.after:
                if not self.ended[other].processed:
                    yield self.ended[other]
            begin = self.env.now
            if stream in ("dispatch", "combine"):
                yield from self._exchange(task)
            else:
                yield self.env.timeout(self.costs.seconds(task))
            self.times[number] = begin, self.env.now
            self.ended[number].succeed()

    def _exchange(self, task: Task) -> Process:
        """The latency of an exchange, then its tokens: one unit, of which a link carries 1 / (its seconds alone) a second."""
        yield self.env.timeout(self.costs.latency)
        use = self._uses[self.stage.kept[task.layer - 1], task.stream == "combine"]
        if use:
            yield self.network.start(use, 1.0)


def _uses(costs: TaskCosts) -> dict[tuple[int, bool], Use]:
    """(kept experts, whether combine) -> links and seconds of an exchange; of links that all exchanges load alike, one."""
    kinds = [(kept, back) for kept in dict.fromkeys(costs.stage.kept) for back in (False, True)]
    loads = np.array([costs.loads(*kind) for kind in kinds]).T
    scale = loads.max(initial=0.0) or 1.0
    _, first = np.unique(np.round(loads / scale, DIGITS), axis=0, return_index=True)
    return {
        kind: tuple((link, float(loads[link, column])) for link in first.tolist() if loads[link, column] > 0.0)
        for column, kind in enumerate(kinds)
    }


def simulate(stage: DisaggregatedStage) -> list[tuple[Task, Seconds, Seconds]]:
    """(task, begin, end) of each task of a step, in the order of `tasks`. Raises NoRoute where nothing joins the ranks."""
    simulation = _Simulation(stage)
    return [(task, *times) for task, times in zip(simulation.tasks, simulation.run(), strict=True)]


def simulated_step(stage: DisaggregatedStage) -> Seconds:
    """Seconds of a simulated step, with the sum of gradients and the optimizer."""
    return simulated_parts(stage)[0]


def simulated_parts(stage: DisaggregatedStage) -> tuple[Seconds, Seconds, Seconds]:
    """Seconds of a simulated step, with the sum of gradients and the optimizer, of all its dispatches and of all its combines,
    one after the other."""
    ends, spent = dict[str, Seconds](), dict[str, Seconds]()
    for task, begin, end in simulate(stage):
        ends[task.stream] = max(ends.get(task.stream, 0.0), end)
        spent[task.stream] = spent.get(task.stream, 0.0) + end - begin
    step = max(ends[stream] + closing for stream, closing in TaskCosts(stage).closing().items())
    return step, spent["dispatch"], spent["combine"]
