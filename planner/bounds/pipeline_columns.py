"""A bound on steps of unlike pipelines by column generation: a column is a replica, which takes devices and passes samples.

A replica passes m microbatches of s samples through stages of its own. Within T seconds each of these, with k layers, of which
it recomputes r, behind a layers, on a slot that takes f, b and i seconds for a layer's forward, its backward, and the part of
that which gives the gradients of its inputs, needs

work      a f* + m (k (f + b) + r f) <= T: its first microbatch has passed the layers before it.
passing   a (f* + i*) + m (k (f + i) + r f) <= T: the gradients of the last one must pass these layers, too; the gradients of
          weights may come later.
latency   (L - k) (f* + i*) + k f + m (k i + r f) <= T: before the first of its backwards, that microbatch has passed forward
          through all L layers, and backward through those behind.

f* and f* + i* are the least of any slot of the fleet for this s that is no wider than the widest one of the replica. A stage
with the head has its m times beside the work, and may have no layer. A stage in time is also in time with fewer layers, and one
that begins a layer later, with one layer less; so the cheapest stages for all layers, at given prices of devices, are found
from the last layer to the first, each with as many layers as are in time (`_Pricing`). Where microbatches are few, replicas are
told apart by the devices of their widest slot, and have one at least: it may stand behind all stages without a layer, for a
stage with more layers might leave it none. Wide slots pass a microbatch fast, but take devices.

Let p be prices of the devices of each kind. If no replica passes more samples than its devices cost, all replicas together pass
no more than all devices cost. So T is ruled out where that is less than the batch, whatever the prices are; those that rule out
most are the dual of the master programme over the columns that were found so far (`planner.models.column_prices`). The bound is
the largest T that is ruled out. Replicas of the same number of microbatches and more are priced together, with the time of the
fewest and the samples of the most, and told apart where that does not rule them out.

The embedding, messages, gradients, the sums of a tied embedding and the optimizer are left out, and the memory of more than one
microbatch in flight. Devices are shared out in fractions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from planner.bounds.pipeline_modes import Modes
from planner.bounds.stage_options import device_kinds
from planner.bounds.stage_tables import FINE, Floats, Groups, StageTables
from planner.models.column_prices import Taken, least_prices
from planner.request import Request
from planner.time_limit import TimeLimit
from sim.units import Seconds

ROUNDING = 1e-9
"""Fraction by which a stage may be late, and samples may be fewer than those of the batch."""
FIRST_STEP = 0.02
"""Share by which a deadline that is ruled out is raised at first; the next shares are twice as large each (a guess)."""
ENDLESS: Seconds = 1e30
"""A deadline that only memory rules out."""
ROUNDS = 40
"""Most columns for a deadline, after which it is not ruled out (a guess)."""


class _Pricing:
    """The cheapest replicas within a deadline, at prices of devices."""

    def __init__(self, tables: StageTables, groups: Groups, deadline: Seconds):
        self.tables, self.groups, self.deadline = tables, groups, deadline * (1 + ROUNDING)
        self._first = tables.most(groups, np.zeros(1), self.deadline)[0]
        self._sizes = np.array(tables.sizes, dtype=float)

    def column(self, prices: Floats, devices: Floats, batch: int) -> Taken | None:
        """A replica that passes so many samples for what its devices cost that all devices could pass the batch; None where
        none does."""
        costs = np.array([prices[kind] * number for kind, number in self.tables.slots])
        dearest = float(prices @ devices) / batch * (1 + ROUNDING)  # of a sample
        groups = self.groups.only(self._least(costs) <= dearest * self.groups.most * self._sizes[self.groups.size])
        while len(groups):
            cost, taken = self._cheapest(groups, costs, len(devices))
            samples = np.where(groups.are_narrow, groups.most, groups.fewest) * self._sizes[groups.size]
            best = int(np.argmin(cost / samples))
            if cost[best] <= dearest * samples[best]:
                return Taken(tuple(taken(best)), float(samples[best]))
            groups = groups.only(cost <= dearest * groups.most * self._sizes[groups.size]).halves()
        return None

    def _least(self, costs: Floats) -> Floats:
        """The least that a replica of each group costs: with stages in fractions, or its widest slot alone."""
        tables, groups = self.tables, self.groups
        allowed = np.where(tables.allowed[groups.width], costs, np.inf)
        with np.errstate(divide="ignore"):
            shared = tables.layers * np.min(allowed / np.maximum(self._first, 0), axis=1)
        return np.asarray(np.maximum(shared, np.where(groups.wide, self._widest(costs)[groups.width], 0.0)))

    def _widest(self, costs: Floats) -> Floats:
        """The cost of the cheapest slot of each width."""
        return np.asarray(np.min(np.where(self.tables.widest, costs, np.inf), axis=1))

    def _cheapest(self, groups: Groups, costs: Floats, kinds: int) -> tuple[Floats, Callable[[int], Floats]]:
        """The least cost of a replica of each group, and the devices of each kind that the one of a group takes."""
        tables, layers, places = self.tables, self.tables.layers, np.arange(len(groups))
        every_most = tables.most(groups, np.arange(layers + 1, dtype=float), self.deadline)
        allowed = np.where(tables.allowed[groups.width], costs, np.inf)
        # first axis: whether the stages behind some layers may lack a slot of the widest kind, or must have one
        least = np.full((2, layers + 2, len(groups)), np.inf)
        slot, behind = (np.zeros((2, layers + 1, len(groups)), dtype=np.intp) for _ in range(2))
        least[0, layers + 1], least[1, layers + 1] = 0.0, self._widest(costs)[groups.width]
        is_widest = tables.widest[groups.width]
        for before in range(layers, -1, -1):
            most = every_most[before]
            ends = np.minimum(before + most, layers)
            ends[tables.with_head(groups, before, most, self.deadline)] = layers + 1
            moves = np.where(ends > before, allowed, np.inf)  # a stage of no layer and without the head goes nowhere
            rest, wide = (one[np.maximum(ends, 0), places[:, None]] for one in least)
            for must, others in enumerate((rest, np.where(is_widest, rest, wide))):
                cost = moves + others
                slot[must, before] = np.argmin(cost, axis=1)
                least[must, before] = cost[places, slot[must, before]]
                behind[must, before] = ends[places, slot[must, before]]

        def taken(group: int) -> Floats:
            found, before, must = np.zeros(kinds), 0, int(groups.wide[group])
            while before <= layers:
                used = slot[must, before, group]
                kind, devices = tables.slots[used]
                found[kind] += devices
                before, must = int(behind[must, before, group]), int(must and not is_widest[group, used])
            if must:
                kind, devices = tables.slots[int(np.argmin(np.where(is_widest[group], costs, np.inf)))]
                found[kind] += devices
            return found

        return np.where(groups.wide, least[1, 0], least[0, 0]), taken


class _Columns:
    """The search for a deadline that is ruled out; prices of one deadline are the first ones of the next."""

    def __init__(self, request: Request, every: Modes):
        self._batch = request.workload.global_batch_size
        kinds = device_kinds(request, every)
        self._tables = StageTables(kinds, request.workload.model.layers)
        self._groups = self._tables.groups(self._batch)
        self._devices = np.array([kind.devices for kind in kinds], dtype=float)
        least = (
            min((one.both * one.devices / size for size, own in kind.options.items() for one in own), default=math.inf)
            for kind in kinds
        )
        self._prices = np.array([1.0 / max(one, 1e-15) for one in least])  # the speeds of the devices

    def rules_out(self, deadline: Seconds) -> bool:
        """Whether it is proved that all devices pass less than the batch within a deadline."""
        if not len(self._groups):
            return True
        pricing, columns = _Pricing(self._tables, self._groups, deadline), list[Taken]()
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
