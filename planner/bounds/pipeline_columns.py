"""A bound on steps of unlike pipelines by column generation: a column is a replica, which takes devices and passes samples.

A replica passes m microbatches of s samples through stages of its own. Within T seconds each of these, with k layers, of which
it recomputes r, behind a layers, on a slot that takes f, b and i seconds for a layer's forward, its backward, and the part of
that which gives the gradients of its inputs, needs

work      a f* + m (k (f + b) + r f) <= T: its first microbatch has passed the layers before it.
passing   a (f* + i*) + m (k (f + i) + r f) <= T: the gradients of the last one must pass these layers, too; the gradients of
          weights may come later.
latency   (L - k) (f* + i*) + k f + m (k i + r f) <= T: before the first of its backwards, that microbatch has passed forward
          through all L layers, and backward through those behind.

f* and f* + i* are the least of any slot of the fleet for this s. A stage with the head has its m times beside the work, and may
have no layer. A stage in time is also in time with fewer layers, and one that begins a layer later, with one layer less; so the
cheapest stages for all layers, at given prices of devices, are found from the last layer to the first, each with as many layers
as are in time (`_Pricing`).

Let p be prices of the devices of each kind. If no replica passes more samples than its devices cost, all replicas together pass
no more than all devices cost. So T is ruled out where that is less than the batch, whatever the prices are; those that rule out
most are the dual of the master programme over the columns that were found so far (`planner.models.column_prices`). The bound is
the largest T that is ruled out. Replicas of the same number of microbatches and more are priced together, with the time of the
fewest and the samples of the most, and told apart where that does not rule them out.

The embedding, messages, gradients, the sums of a tied embedding and the optimizer are left out, and the memory of more than one
microbatch in flight. Devices are shared out in fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.bounds.pipeline_modes import Modes
from planner.bounds.stage_options import DeviceKind, StageOption, device_kinds
from planner.models.column_prices import Taken, least_prices
from planner.request import Request
from planner.time_limit import TimeLimit
from sim.units import Seconds

Floats = NDArray[np.float64]
Whole = NDArray[np.intp]
ROUNDING = 1e-9
"""Fraction by which a stage may be late, and samples may be fewer than those of the batch."""
FINE = 5e-3
"""Relative accuracy of the bound (a guess): each halving of it takes one more search for columns."""
GROUPED = 1.1
"""Ratio of the most to the fewest microbatches that are priced together first (a guess)."""
FIRST_STEP = 0.02
"""Share by which a deadline that is ruled out is raised at first; the next shares are twice as large each (a guess)."""
ENDLESS: Seconds = 1e30
"""A deadline that only memory rules out."""
ROUNDS = 40
"""Most columns for a deadline, after which it is not ruled out (a guess)."""


@dataclass(frozen=True, slots=True)
class _Groups:
    """Numbers of microbatches that are priced together, one group in each place: the index of their size, and the fewest and
    most of them."""

    size: Whole
    fewest: Floats
    most: Floats

    def __len__(self) -> int:
        return len(self.size)

    @property
    def are_narrow(self) -> NDArray[np.bool_]:
        """Whether all numbers of a group are taken for its largest: they differ by less than the accuracy of the bound."""
        return self.most <= self.fewest * (1 + FINE)

    def only(self, which: NDArray[np.bool_]) -> _Groups:
        """Some of them."""
        return _Groups(self.size[which], self.fewest[which], self.most[which])

    def halves(self) -> _Groups:
        """The same without the fewest of each, in two parts each."""
        middle = np.floor((self.fewest + self.most) / 2)
        parts = (self.fewest + 1, middle), (middle + 1, self.most)
        size, fewest, most = (
            np.concatenate(one) for one in ((self.size, self.size), (parts[0][0], parts[1][0]), (parts[0][1], parts[1][1]))
        )
        return _Groups(size, fewest, most).only(fewest <= most)


def grouped(most: int) -> list[tuple[int, int]]:
    """The whole numbers up to `most` in groups, (fewest, most) of each."""
    groups, fewest = list[tuple[int, int]](), 1
    while fewest <= most:
        last = min(max(fewest, math.floor(fewest * GROUPED)), most)
        groups.append((fewest, last))
        fewest = last + 1
    return groups


class _Stages:
    """Seconds of all stages, by the size of microbatches (first axis), kind of slot (second) and layers (third).

    whole: k (f + b) + r f; passing: k (f + i) + r f; behind: k i + r f; ahead: k f; head: of the head. forward and through: the
    least seconds of a layer's forward, and of that and the gradients of its inputs, by size."""

    def __init__(self, kinds: Sequence[DeviceKind], layers: int):
        self.sizes = sorted({size for kind in kinds for size in kind.options})
        every = [(size, one) for kind in kinds for size, own in kind.options.items() for one in own]
        self.slots = sorted({(one.kind, one.devices) for _, one in every})
        shape = len(self.sizes), len(self.slots)
        self.whole, self.passing, self.behind, self.ahead = (np.full((*shape, layers + 1), np.inf) for _ in range(4))
        self.head = np.full(shape, np.inf)
        self.forward, self.through = (np.full(shape[0], np.inf) for _ in range(2))
        for size, one in every:
            self._fill(self.sizes.index(size), self.slots.index((one.kind, one.devices)), one)

    def _fill(self, size: int, slot: int, one: StageOption) -> None:
        again = np.array(one.again)
        layers = np.arange(len(again), dtype=float)
        where = size, slot, slice(len(again))
        self.whole[where] = layers * one.both + again
        self.passing[where] = layers * (one.forward + one.inputs) + again
        self.behind[where] = layers * one.inputs + again
        self.ahead[where] = layers * one.forward
        self.head[size, slot] = one.head
        self.forward[size] = min(self.forward[size], one.forward)
        self.through[size] = min(self.through[size], one.forward + one.inputs)


class _Pricing:
    """The cheapest replicas within a deadline, at prices of devices."""

    def __init__(self, stages: _Stages, layers: int, groups: _Groups, deadline: Seconds):
        self.stages, self.layers, self.groups, self.deadline = stages, layers, groups, deadline * (1 + ROUNDING)
        self._first = self._most(groups, np.zeros(1))[0]

    def _most(self, groups: _Groups, before: Floats) -> Whole:
        """The most layers of a stage behind so many layers (first axis) for each group (second) on each slot (third); -1 where
        it has no time for any."""
        stages, m = self.stages, groups.fewest
        filled, passed = (
            (self.deadline - before[:, None] * least[groups.size]) / m for least in (stages.forward, stages.through)
        )
        found = np.empty((*filled.shape, len(stages.slots)), dtype=np.intp)
        latest = self._latest(groups)
        for size in np.unique(groups.size):
            own = groups.size == size
            for slot in range(len(stages.slots)):
                work = np.searchsorted(stages.whole[size, slot], filled[:, own], side="right")
                passing = np.searchsorted(stages.passing[size, slot], passed[:, own], side="right")
                found[:, own, slot] = np.minimum(np.minimum(work, passing) - 1, latest[own, slot])
        return found

    def _latest(self, groups: _Groups) -> Whole:
        """The most layers of a stage whose last microbatch passes backward through all layers in time, wherever it is."""
        own, m, layers = groups.size, groups.fewest[:, None, None], np.arange(self.layers + 1, dtype=float)
        others = (self.layers - layers) * self.stages.through[own][:, None, None]
        seconds = others + self.stages.ahead[own] + m * self.stages.behind[own]
        return np.asarray(np.sum(seconds <= self.deadline, axis=-1) - 1, dtype=np.intp)

    def column(self, prices: Floats, devices: Floats, batch: int) -> Taken | None:
        """A replica that passes so many samples for what its devices cost that all devices could pass the batch; None where
        none does."""
        costs = np.array([prices[kind] * number for kind, number in self.stages.slots])
        dearest = float(prices @ devices) / batch * (1 + ROUNDING)  # of a sample
        sizes = np.array(self.stages.sizes, dtype=float)
        with np.errstate(divide="ignore"):
            least = self.layers * np.min(costs / np.maximum(self._first, 0), axis=1)  # stages in fractions
        chosen = least <= dearest * self.groups.most * sizes[self.groups.size]
        groups = self.groups.only(chosen)
        while len(groups):
            cost, taken = self._cheapest(groups, costs, len(devices))
            samples = np.where(groups.are_narrow, groups.most, groups.fewest) * sizes[groups.size]
            best = int(np.argmin(cost / samples))
            if cost[best] <= dearest * samples[best]:
                return Taken(tuple(taken(best)), float(samples[best]))
            groups = groups.only(cost <= dearest * groups.most * sizes[groups.size]).halves()
        return None

    def _cheapest(self, groups: _Groups, costs: Floats, kinds: int) -> tuple[Floats, Callable[[int], Floats]]:
        """The least cost of a replica of each group, and the devices of each kind that the one of a group takes."""
        layers, places = self.layers, np.arange(len(groups))
        every_most = self._most(groups, np.arange(layers + 1, dtype=float))
        least = np.full((layers + 2, len(groups)), np.inf)
        slot, behind = (np.zeros((layers + 1, len(groups)), dtype=np.intp) for _ in range(2))
        least[layers + 1] = 0.0  # behind the head
        for before in range(layers, -1, -1):
            ends = np.minimum(before + every_most[before], layers)
            ends[self._with_head(groups, before, every_most[before])] = layers + 1
            # a stage of no layer and without the head goes nowhere
            cost = np.where(ends > before, costs + least[np.maximum(ends, 0), places[:, None]], np.inf)
            slot[before] = np.argmin(cost, axis=1)
            least[before], behind[before] = cost[places, slot[before]], ends[places, slot[before]]

        def taken(group: int) -> Floats:
            found, before = np.zeros(kinds), 0
            while before <= layers:
                kind, devices = self.stages.slots[slot[before, group]]
                found[kind] += devices
                before = int(behind[before, group])
            return found

        return least[0], taken

    def _with_head(self, groups: _Groups, before: int, most: Whole) -> NDArray[np.bool_]:
        """Whether a stage on each slot may hold all layers behind so many of them, and the head."""
        own, left = groups.size, self.layers - before
        filled = (self.deadline - before * self.stages.forward[own]) / groups.fewest
        seconds = self.stages.whole[own, :, left] + self.stages.head[own]
        return np.asarray((most >= left) & (seconds <= filled[:, None]))


class _Columns:
    """The search for a deadline that is ruled out; prices of one deadline are the first ones of the next."""

    def __init__(self, request: Request, every: Modes):
        self._batch, self._layers = request.workload.global_batch_size, request.workload.model.layers
        kinds = device_kinds(request, every)
        self._stages = _Stages(kinds, self._layers)
        self._devices = np.array([kind.devices for kind in kinds], dtype=float)
        # one replica leaves a sample to another one
        own = [(index, *group) for index, size in enumerate(self._stages.sizes) for group in grouped((self._batch - 1) // size)]
        size, fewest, most = zip(*own, strict=True) if own else ((), (), ())
        self._groups = _Groups(np.array(size, dtype=np.intp), np.array(fewest, dtype=float), np.array(most, dtype=float))
        least = (
            min((one.both * one.devices / size for size, own in kind.options.items() for one in own), default=math.inf)
            for kind in kinds
        )
        self._prices = np.array([1.0 / max(one, 1e-15) for one in least])  # the speeds of the devices

    def rules_out(self, deadline: Seconds) -> bool:
        """Whether it is proved that all devices pass less than the batch within a deadline."""
        if not len(self._groups):
            return True
        pricing, columns = _Pricing(self._stages, self._layers, self._groups, deadline), list[Taken]()
        for _ in range(ROUNDS):
            column = pricing.column(self._prices, self._devices, self._batch)
            if column is None:
                return True
            columns.append(column)
            if len(self._devices) == 1:
                return False
            found = least_prices(columns, self._devices.tolist(), TimeLimit(math.inf))
            if found is None:
                return False
            self._prices = np.maximum(found, 1e-9 * max(found))
            if sum(map(math.prod, zip(found, self._devices, strict=True))) >= self._batch * (1 - ROUNDING):
                return False
        return False


def columns_seconds(request: Request, every: Modes, least: Seconds) -> Seconds:
    """A lower bound in seconds on every step in which all devices pass the batch through replicas, two or more; `least` where
    none above it is found, and infinite where memory has no room for any replica.

    least: a known lower bound, above 0, from which the search begins."""
    columns = _Columns(request, every)
    if not columns.rules_out(least * (1 + FINE)):
        return least
    low, share = least * (1 + FINE), FIRST_STEP
    while columns.rules_out(high := low * (1 + share)):
        low, share = high, 2 * share
        if share > 1 and columns.rules_out(ENDLESS):
            return math.inf
    while high > low * (1 + FINE):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if columns.rules_out(middle) else (low, middle)
    return low
