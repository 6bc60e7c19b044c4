"""Upper bounds on what the pipelines of a part compute within a deadline, before any plan of the part is known.

Two kinds, as columns have them. Of one replica: with stages of at most T seconds for a microbatch, a slot of devices on which a
layer takes t seconds holds at most the whole part of T / t layers, and all slots together hold the model. Of several replicas:
the work of all samples over the best rates of the devices, with fractional layers (`planner.bounds.unlike_pipelines`). Both
leave out fill and drain, recomputation and messages. Each entry of a searched plan has nodes of its own, so all gradients
cross nodes: those of a part leave its nodes over all their NICs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.bounds import unlike_pipelines as bounds
from planner.bounds.pipeline_modes import Modes, modes, suiting
from planner.costs.context import PlanningContext
from planner.models.pipeline_master import Choice, samples_bound
from planner.pipelines.parts import Part
from planner.request import Request
from planner.time_limit import TimeLimit
from sim.plan.groups import GRADIENT_KINDS
from sim.units import Seconds, time_text

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Cycles:
    """Stages for microbatches of `size` samples. seconds: of the slowest stage, ascending; layers: whole layers that a device
    of each cluster (a row) then holds; head: layers for whose time the stage with the head has no room."""

    size: int
    seconds: Floats
    layers: Floats
    head: int

    def least(self, devices: Floats, layers: int) -> Seconds:
        """Least seconds of the slowest stage of a pipeline on so many devices of each cluster; infinite where it is more than
        that of all layers on one of them."""
        found = int(np.searchsorted(devices @ self.layers, (layers + self.head) * (1 - 1e-9)))
        return float(self.seconds[found]) if found < len(self.seconds) else math.inf


class PartBounds:
    """Bounds on the parts of a request, whose model has equal layers; whole_sequences: on plans with cp 1 only. every: the
    modes of all its clusters, if they are known."""

    def __init__(self, request: Request, whole_sequences: bool = False, every: Modes | None = None):
        self._request, self._clusters = request, tuple(request.clusters())
        every = every or modes(PlanningContext(request), whole_sequences)
        self._modes = {name: tuple(one for one in own if one.cp == 1 or not whole_sequences) for name, own in every.items()}
        self._suiting = suiting(self._modes)
        self._dense, self._routed = (bounds.payload(request, (kind,)) for kind in GRADIENT_KINDS)
        self._kept = bounds.kept_bytes(request)
        self._nics = [bounds.node_rate(cluster) for cluster in self._clusters]
        self._cycles = [self._of_size(size) for size in sorted({one.size for own in self._modes.values() for one in own})]
        self._slowest: dict[Part, tuple[Seconds, ...]] = {}
        self._work: dict[Part, Seconds] = {}

    def gradients(self, part: Part, replicas: int) -> Seconds:
        """Least seconds in which the gradients and weights of so many replicas leave the nodes of a part. Replicas may divide
        experts, so that only two ranks have the same ones."""
        rate = sum(number * one for number, one in zip(part, self._nics, strict=True))
        left = self._dense * (replicas - 1) / replicas + self._routed * (bounds.FEWEST - 1) / bounds.FEWEST
        return left / rate if rate else math.inf

    def samples(self, part: Part, one: bool, deadline: Seconds) -> float:
        """Most samples that a part computes within a deadline: with `one` replica, or with several; 0 where it has no room for
        their weights and gradients."""
        devices = {cluster.name: number * cluster.node.count for cluster, number in zip(self._clusters, part, strict=True)}
        copies = 1 if one or self._routed else bounds.FEWEST  # replicas that divide experts have one copy of them together
        if self._kept * copies > bounds.room(self._request, devices):
            return 0.0
        if one:
            if part not in self._slowest:
                many, layers = np.array([*devices.values()], float), self._request.workload.model.layers
                self._slowest[part] = tuple(cycles.least(many, layers) for cycles in self._cycles)
            slowest = zip(self._cycles, self._slowest[part], strict=True)
            return max(cycles.size * math.floor(deadline / seconds * (1 + 1e-9)) for cycles, seconds in slowest)
        if part not in self._work:
            self._work[part] = bounds.work_seconds(self._request, devices, self._suiting)
        return self._request.workload.global_batch_size * deadline / self._work[part]

    def rules_out(self, every: Sequence[Part], deadline: Seconds, limit: TimeLimit) -> str:
        """Why no pipelines on parts of their own, of those that are given, take less than a deadline; empty where some may."""
        nodes, least = tuple(cluster.nodes for cluster in self._clusters), math.inf
        for part, other in itertools.combinations_with_replacement(every, 2):
            if all(one + another <= have for one, another, have in zip(part, other, nodes, strict=True)):
                least = min(least, max(self.gradients(one, bounds.FEWEST) for one in (part, other)))
        if least >= deadline:
            if math.isinf(least):
                return "for no two of them have nodes of their own"
            return f"for their gradients alone take {time_text(float(f'{least:.4g}'))}"
        allowed = [part for part in every if self.gradients(part, bounds.FEWEST) < deadline]
        choices = [
            Choice(part, 1 if one else bounds.FEWEST, self.samples(part, one, deadline))
            for part, one in itertools.product(allowed, (True, False))
        ]
        most = samples_bound([choice for choice in choices if choice.samples], nodes, limit)
        return "" if most >= self._request.workload.global_batch_size * (1 - 1e-9) else "for their compute alone takes longer"

    def _of_size(self, size: int) -> _Cycles:
        layers = self._request.workload.model.layers
        own = [[one for one in self._modes[cluster.name] if one.size == size] for cluster in self._clusters]
        every = {number * mode.seconds[0] for modes in own for mode in modes for number in range(1, 2 * layers + 1)}
        seconds = np.array(sorted(every))
        held = [
            np.max([np.floor(seconds / mode.seconds[0] * (1 + 1e-9)) / mode.devices for mode in modes], axis=0)
            if modes else np.zeros_like(seconds)
            for modes in own
        ]  # fmt: skip
        head = min(math.floor(mode.seconds[2] / mode.seconds[0]) for modes in own for mode in modes)
        return _Cycles(size, seconds, np.array(held), head)
