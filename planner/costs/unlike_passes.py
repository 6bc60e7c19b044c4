"""Seconds of the passes of layers that differ: of a layer of a kind, and of a stage with some layers of each kind.

Without the exchange of cp ranks, the passes of a stage are linear in its layers of each kind, but for exchanges that run beside
compute (`sim.kernels.beside`): what the layers of one kind do not need of their compute may hide those of another kind."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.costs.layer_kinds import Counts, Ends, Layers
from sim.analytic.stage_amounts import weight_seconds
from sim.analytic.stage_costs import StageCost, StageCosts
from sim.hardware.device_spec import DeviceSpec
from sim.kernels import beside
from sim.plan.program import TENSOR
from sim.units import Seconds


@dataclass(frozen=True, slots=True)
class KindSeconds:
    """Least seconds of one microbatch on one layer of a kind.

    `inputs`: the backward, without weight gradients where the schedule splits it; `both`: forward and whole backward. `waited`:
    what later stages wait for while the pipeline fills and, unless the backward is split, drains."""

    forward: Seconds
    inputs: Seconds
    both: Seconds
    waited: Seconds

    @classmethod
    def of(cls, seconds: tuple[Seconds, Seconds, Seconds], splits: bool) -> KindSeconds:
        """Those of a layer with these seconds (`layer_seconds`); splits: the schedule splits off the weight gradients."""
        forward, backward, weight = seconds
        inputs, both = max(backward - weight, 0.0) if splits else backward, forward + backward
        return cls(forward, inputs, both, forward if splits else both)

    @property
    def passed(self) -> Seconds:
        """Forward and gradients of inputs."""
        return self.forward + self.inputs


class LinearPasses:
    """Costs of the stages with the same ends on some devices. Their passes are linear in the layers of each kind, which is used
    without cp and where no two kinds have exchanges beside compute; gradients and weights are not, since they are reduced and
    gathered in buckets."""

    def __init__(self, costs: StageCosts, layers: Layers, ends: Ends, specs: tuple[DeviceSpec, ...] = ()):
        self._costs, self._layers, self._ends, self._specs = costs, layers, ends, specs
        self._is_linear = costs.config.cp == 1 and not all(ends) and _exchanging(costs, layers, ("beside", *TENSOR)) < 2

    def cost(self, counts: Counts) -> StageCost:
        """Costs of a stage without its messages."""
        costs = replace(self._costs, workload=self._layers.of(counts, self._ends[1]))
        if not self._is_linear or not any(counts):
            return costs.of(sum(counts), *self._ends, self._specs)
        forward, backward = (sum(n * one[way] for n, one in zip((1, *counts), self._passes, strict=True)) for way in (0, 1))
        return costs.of(sum(counts), *self._ends, self._specs, (forward, backward))

    @functools.cached_property
    def _passes(self) -> list[tuple[Seconds, Seconds]]:
        """(forward, backward) seconds beside the layers, and of each further layer of each kind."""
        kinds = range(len(self._layers.kinds))
        first = self._exact(self._layers.only(0, 1))
        twos = (
            tuple(a + b for a, b in zip(self._layers.only(0, 1), self._layers.only(kind, 1), strict=True)) for kind in kinds
        )
        each = [(both[0] - first[0], both[1] - first[1]) for both in map(self._exact, twos)]
        return [(first[0] - each[0][0], first[1] - each[0][1]), *each]

    def _exact(self, counts: Counts) -> tuple[Seconds, Seconds]:
        workload = self._layers.of(counts, self._ends[1])
        return replace(self._costs, workload=workload).passes(sum(counts), *self._ends, self._specs)


def layer_seconds(
    every: Sequence[StageCosts], layers: Layers, kind: int, specs: tuple[DeviceSpec, ...] = ()
) -> tuple[Seconds, Seconds, Seconds]:
    """(forward, backward, weight gradients) of a layer of a kind between others: the least, the least and the most.

    Without the ends and the exchange of cp ranks, the seconds of a stage are at least those of its layers times their number.
    Where two kinds have exchanges of tokens beside compute, what they and other collectives take is left out. specs: device
    types, if not all of the stages."""
    workload, found = layers.of(layers.only(kind, 1), False), []
    for costs in (replace(one, workload=workload) for one in every):
        forward, backward = costs.work(1, False, False, specs)
        if max(costs.config.cp, costs.config.ep) > 1 and _exchanging(costs, layers, ("beside",)) < 2:
            alone, passes = costs.alone(1, False, False, specs), costs.passes(1, False, False, specs)
            forward, backward = forward + passes[0] - alone[0], backward + passes[1] - alone[1]
        used = specs or costs.collectives.specs
        weight = max(weight_seconds(spec, workload, costs.config, 1, False) for spec in used)
        found.append((forward, backward, weight))
    forwards, backwards, weights = zip(*found, strict=True)
    return min(forwards), min(backwards), max(weights)


def _exchanging(costs: StageCosts, layers: Layers, names: Sequence[str]) -> int:
    """Number of kinds of layers with exchanges of these kinds beside compute."""
    every = (layers.of(layers.only(kind, 1), False) for kind in range(len(layers.kinds)))
    found = ([one for way in (False, True) for one in beside.exchanges(workload, costs.config, 1, way)] for workload in every)
    return sum(any(one.kind in names for one in exchanges) for exchanges in found)
