"""When an island exchanges: the exchanges of its sync strategy, counted in inner steps.

Exchanges run in a thread of their own. Inner steps go on beside an exchange until its result is due; only then the rank
waits."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from holmes_sim.torch_backend.comm_threads import CommThread, Job
from holmes_sim.torch_backend.devices import HOST
from holmes_sim.torch_backend.islands import outer_updates
from holmes_sim.torch_backend.islands.links import Link, fragments_of
from holmes_sim.torch_backend.islands.outer_updates import MakesUpdate, MeanOfWeights
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


@dataclass(slots=True, eq=False)
class Underway:
    """An exchange that has begun: its fragment, the inner step after which its result is due, its job, and once the job is done
    the mean of each link, and when the last value had come."""

    fragment: int
    due: int
    job: Job | None = None
    means: list[Tensor] = field(default_factory=list)
    arrived: Seconds = 0.0


@dataclass(slots=True)
class Times:
    """Seconds of the rank's own clock: begin and end of each exchange, and the time that the rank waited for exchanges or
    computed outer updates."""

    exchanges: list[tuple[Seconds, Seconds]] = field(default_factory=list)
    waited: Seconds = 0.0


class OuterLoop:
    """The exchanges of one rank. `update` makes the outer update of a fragment of a link; the default is that of the
    strategy."""

    def __init__(self, sync: Sync, values: Values, links: list[Link], reducer: Reducer, update: MakesUpdate | None = None):
        self.sync, self.values, self.links, self.reducer = sync, values, links, reducer
        self.thread, self.times, self.steps = CommThread("outer", HOST), Times(), 0
        self.underway: list[Underway] = []
        self.fragments: list[list[Ranges]] = []
        self.updates: list[list[MeanOfWeights]] = []
        self._begins_first = False
        if get(sync.strategy).SENDS == "outer gradients":
            weights, update = values.weights(), update or outer_updates.of(sync)
            by_link = [fragments_of(link, len(sync.exchanges)) for link in links]
            for index, exchange in enumerate(sync.exchanges):
                self.fragments.append([parts[index] for parts in by_link])
                self.updates.append([update(_taken(weights, ranges), exchange.overlap > 0) for ranges in self.fragments[-1]])
            self._begins_first = any(one.BEGINS_FIRST for some in self.updates for one in some)

    def before_optimizer(self) -> None:
        """Exchange the gradients of the step, under a strategy that does so. A worker calls it before its optimizer."""
        if get(self.sync.strategy).SENDS != "gradients":
            return
        since = time.perf_counter()
        gradients = self.values.gradients()
        sent = [_taken(gradients, link.ranges) for link in self.links]
        one = self._begin(0, sent, 0)
        self._wait(one)
        for link, result in zip(self.links, one.means, strict=True):
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
        first = {index: self._outer_gradients(index, weights) for index in begin if self._begins_first}
        for one in due:
            self._finish(one, weights)
        for index in begin:
            overlap = self.sync.exchanges[index].overlap
            outer = first[index] if index in first else self._outer_gradients(index, weights)
            self.underway.append(self._begin(index, outer, self.steps + overlap))
            if not overlap:
                self._finish(self.underway[-1], weights)
        self.values.set_weights(weights)
        self.times.waited += time.perf_counter() - since

    def close(self) -> None:
        """Wait for exchanges under way, whose results are not used, and end the thread."""
        for one in self.underway:
            self._wait(one)
        self.thread.close()

    def _begin(self, fragment: int, sent: list[Tensor], due: int) -> Underway:
        """Begin an exchange, and behind it the outer step."""
        found = Underway(fragment, due)

        def work() -> None:
            found.means = self.reducer.reduce(sent, fragment)
            found.arrived = time.perf_counter()
            for update, mean in zip(self.updates[fragment], found.means, strict=True) if self.updates else ():
                update.step(mean)

        found.job = self.thread.submit(work)
        return found

    def _wait(self, one: Underway) -> None:
        assert one.job is not None
        one.job.wait()
        self.times.exchanges.append((one.job.started, one.arrived))

    def _outer_gradients(self, fragment: int, weights: Tensor) -> list[Tensor]:
        pairs = zip(self.updates[fragment], self.fragments[fragment], strict=True)
        return [update.outer_gradient(_taken(weights, ranges)) for update, ranges in pairs]

    def _finish(self, one: Underway, weights: Tensor) -> None:
        """Wait for a result and write the updated weights of its fragment into `weights`."""
        self._wait(one)
        self.underway.remove(one)
        for update, ranges in zip(self.updates[one.fragment], self.fragments[one.fragment], strict=True):
            _put(weights, ranges, update.finish(_taken(weights, ranges)))


def _taken(values: Tensor, ranges: Ranges) -> Tensor:
    """A copy of some ranges of a vector, one after the other."""
    return torch.cat([values[start:stop] for start, stop in ranges]) if ranges else values.new_zeros(0)


def _put(values: Tensor, ranges: Ranges, new: Tensor) -> None:
    """Write into some ranges of a vector."""
    for (start, stop), part in zip(ranges, new.split([stop - start for start, stop in ranges]), strict=True):
        values[start:stop] = part
