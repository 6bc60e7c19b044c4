"""When an island exchanges: the exchanges of its sync strategy, counted in inner steps.

Exchanges run in a thread of their own. Inner steps go on beside an exchange until its result is due; only then the rank
waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from holmes_sim.torch_backend.comm_threads import CommThread, Job
from holmes_sim.torch_backend.devices import HOST
from holmes_sim.torch_backend.islands import outer_updates
from holmes_sim.torch_backend.islands.links import Link, fragments_of
from holmes_sim.torch_backend.islands.outer_updates import OuterUpdate
from holmes_sim.torch_backend.islands.reducers import Reducer
from sim.sync import Sync, get
from sim.units import Seconds

Ranges = tuple[tuple[int, int], ...]


class Values(Protocol):
    """The parameters of a rank (`training_values`, `paced_values`), as vectors of fp32 in host memory."""

    def weights(self) -> Tensor:
        """The weights."""
        ...

    def set_weights(self, values: Tensor) -> None:
        """Replace the weights."""
        ...

    def gradients(self) -> Tensor:
        """The reduced gradients of the step."""
        ...

    def set_gradients(self, values: Tensor) -> None:
        """Replace the reduced gradients."""
        ...


class Underway(NamedTuple):
    """An exchange that has begun: its fragment, its job, its results by link once the job is done, and the inner step after
    which they are due."""

    fragment: int
    job: Job
    results: list[Tensor]
    due: int


@dataclass(slots=True)
class Times:
    """Seconds of the rank's own clock: begin and end of each exchange, and the time that the rank waited for exchanges or
    computed outer updates."""

    exchanges: list[tuple[Seconds, Seconds]] = field(default_factory=list)
    waited: Seconds = 0.0


class OuterLoop:
    """The exchanges of one rank. `pause` is called after an outer update with the number of its parameters; paced ranks
    sleep."""

    def __init__(
        self, sync: Sync, values: Values, links: list[Link], reducer: Reducer, pause: Callable[[int], None] = lambda count: None
    ):
        self.sync, self.values, self.links, self.reducer, self.pause = sync, values, links, reducer, pause
        self.thread, self.times, self.steps = CommThread("outer", HOST), Times(), 0
        self.underway: list[Underway] = []
        self.fragments: list[list[Ranges]] = []
        self.updates: list[list[OuterUpdate]] = []
        if get(sync.strategy).SENDS == "outer gradients":
            weights, update = values.weights(), outer_updates.of(sync)
            by_link = [fragments_of(link, len(sync.exchanges)) for link in links]
            for index, exchange in enumerate(sync.exchanges):
                self.fragments.append([parts[index] for parts in by_link])
                self.updates.append([update(_taken(weights, ranges), exchange.overlap > 0) for ranges in self.fragments[-1]])

    def before_optimizer(self) -> None:
        """Exchange the gradients of the step, under a strategy that does so. A worker calls it before its optimizer."""
        if get(self.sync.strategy).SENDS != "gradients":
            return
        since = time.perf_counter()
        gradients = self.values.gradients()
        sent = [_taken(gradients, link.ranges) for link in self.links]
        one = self._begin(0, sent, 0)
        one.job.wait()
        self.times.exchanges.append((one.job.started, one.job.ended))
        for link, result in zip(self.links, one.results, strict=True):
            _put(gradients, link.ranges, result)
        self.values.set_gradients(gradients)
        self.times.waited += time.perf_counter() - since

    def after_step(self) -> None:
        """Apply the results that are due after this inner step, and begin the exchanges that follow it."""
        self.steps += 1
        if not self.updates:
            return
        within = (self.steps - 1) % self.sync.inner_steps + 1
        due = [one for one in self.underway if one.due == self.steps]
        begin = [index for index, exchange in enumerate(self.sync.exchanges) if exchange.start == within]
        if not (due or begin):
            return
        since = time.perf_counter()
        weights = self.values.weights()
        discards = bool(begin) and self.updates[begin[0]][0].DISCARDS
        sent = {index: self._outer_gradients(index, weights) for index in begin if discards}
        for one in due:
            self._finish(one, weights)
        for index in begin:
            overlap = self.sync.exchanges[index].overlap
            outer = sent[index] if discards else self._outer_gradients(index, weights)
            self.underway.append(self._begin(index, outer, self.steps + overlap))
            if not overlap:
                self._finish(self.underway[-1], weights)
            for update, ranges in zip(self.updates[index], self.fragments[index], strict=True) if discards else ():
                _put(weights, ranges, update.old)
        self.values.set_weights(weights)
        self.times.waited += time.perf_counter() - since

    def close(self) -> None:
        """Wait for exchanges under way, whose results are not used, and end the thread."""
        for one in self.underway:
            one.job.wait()
        self.thread.close()

    def _begin(self, fragment: int, sent: list[Tensor], due: int) -> Underway:
        results: list[Tensor] = []
        return Underway(fragment, self.thread.submit(lambda: results.extend(self.reducer.reduce(sent, fragment))), results, due)

    def _outer_gradients(self, fragment: int, weights: Tensor) -> list[Tensor]:
        pairs = zip(self.updates[fragment], self.fragments[fragment], strict=True)
        return [update.outer_gradient(_taken(weights, ranges)) for update, ranges in pairs]

    def _finish(self, one: Underway, weights: Tensor) -> None:
        """Wait for a result and write the updated weights of its fragment into `weights`."""
        one.job.wait()
        self.underway.remove(one)
        self.times.exchanges.append((one.job.started, one.job.ended))
        count = 0
        for update, ranges, mean in zip(self.updates[one.fragment], self.fragments[one.fragment], one.results, strict=True):
            _put(weights, ranges, update.updated(_taken(weights, ranges), mean))
            count += mean.numel()
        self.pause(count)


def _taken(values: Tensor, ranges: Ranges) -> Tensor:
    """A copy of some ranges of a vector, one after the other."""
    return torch.cat([values[start:stop] for start, stop in ranges]) if ranges else values.new_zeros(0)


def _put(values: Tensor, ranges: Ranges, new: Tensor) -> None:
    """Write into some ranges of a vector."""
    for (start, stop), part in zip(ranges, new.split([stop - start for start, stop in ranges]), strict=True):
        values[start:stop] = part
