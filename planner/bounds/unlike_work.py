"""Total-work bounds for models whose layers differ.

In T seconds a slot (tensor-parallel group) of class c, which takes t[c, k] seconds for a layer of kind k and one microbatch,
processes x[k] such layers with the sum of t[c, k] x[k] at most T. Give each layer of kind k a weight w[k] >= 0: the slot then
processes at most T times the largest w[k] / t[c, k] units of weight. All slots together process N[k] layers of each kind, so

    T >= (sum over k of w[k] N[k]) / (sum over slots of max over k of w[k] / t[c, k])

for all weights (they are the dual variables of the linear programme that shares the layers out). The weights tried here are
the seconds on each class, which is exact where one class is used, and nearly so where classes are faster or slower by one
factor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from planner.bounds.relaxation import filled_and_drained
from planner.bounds.total_work import fewest_stages
from planner.costs.context import PlanningContext
from planner.costs.layer_kinds import Layers
from planner.costs.unlike_layers import UnlikeStages
from planner.costs.unlike_passes import KindSeconds
from planner.request import Request
from planner.space import lengths
from planner.space.device_slots import Run, distinct_offsets, rows
from planner.space.shape import Shape, split_backward
from planner.space.shapes import slots
from sim.analytic.stage_costs import StageCosts
from sim.hardware.cluster import Cluster
from sim.network.collective_costs import CollectiveCosts
from sim.units import Seconds


def shared_out(numbers: Sequence[float], classes: Iterable[tuple[Sequence[Seconds], float]], most: float = math.inf) -> Seconds:
    """Least seconds in which slots process so many layers of each kind; `classes`: (seconds by kind, number of slots) of each.

    most: slots that may be used. Infinite where there are none."""
    every = [(each, many) for each, many in classes if many > 0]
    found = 0.0 if every else math.inf
    for weights, _ in every:
        total = sum(weight * number for weight, number in zip(weights, numbers, strict=True))
        found = max(found, total / sum(_speeds(weights, every, most)))
    return found


def _speeds(weights: Sequence[float], classes: Sequence[tuple[Sequence[Seconds], float]], most: float) -> list[float]:
    """The largest units of weight per second of the fastest `most` slots: a number for all slots of each class."""
    rates = sorted(((max(w / t for w, t in zip(weights, each, strict=True)), many) for each, many in classes), reverse=True)
    found = []
    for rate, many in rates:
        used = min(many, most)
        found.append(rate * used)
        most -= used
    return found


class UnlikeWork:
    """Total-work bounds on the step of all plans of a shape, mixed stages included; each is computed once."""

    def __init__(self, context: PlanningContext, layers: Layers):
        self._context, self._layers, self._pp = context, layers, fewest_stages(context.request)
        self._bounds: dict[Shape, Seconds] = {}

    def bound(self, shape: Shape) -> Seconds:
        """A lower bound in seconds on all plans with the shape's tp, cp, ep, etp, microbatch size and recomputation, under any
        schedule and placement. Infinite where no cluster has the slots."""
        one = split_backward(shape.one_mesh)
        if one not in self._bounds:
            request = self._context.request
            able = [one_cluster for one_cluster in request.clusters() if one_cluster.node.count >= one.tp_on(one_cluster.name)]
            classes = [(self.seconds(cluster, one.on(cluster.name)), self._replicas(cluster, one)) for cluster in able]
            many = request.workload.global_batch_size / shape.microbatch_size
            self._bounds[one] = many * shared_out(self._layers.every, classes)
        return self._bounds[one]

    def _replicas(self, cluster: Cluster, shape: Shape) -> float:
        """Replicas of one stage that a cluster holds, in fractions: its slots / cp; 0 where not even one has room."""
        many = slots(cluster, shape.tp_on(cluster.name))
        return many / shape.cp if many >= shape.cp else 0.0

    def seconds(self, cluster: Cluster, shape: Shape) -> tuple[Seconds, ...]:
        """Least seconds of one microbatch on a layer of each kind: compute and tensor-parallel collectives of one replica."""
        context, layers = self._context, self._layers
        many = slots(cluster, shape.tp)
        if many < shape.cp:
            return (math.inf,) * len(layers.kinds)
        config, found = shape.config(context.request.workload, self._pp), []
        alone = replace(config, dp=1, num_microbatches=config.num_microbatches[:1], ep=1, etp=None, zero_shard_size=None)
        for run in distinct_offsets(Run(cluster, 0, many), shape.tp, shape.cp):
            paid = CollectiveCosts(context.fleets.fleet, alone, rows((run,), shape.tp), context.fleets.capacities)
            kinds = (layers.of(layers.only(kind, 1), False) for kind in range(len(layers.kinds)))
            found.append([sum(StageCosts(workload, config, paid).work(1, False, False)) for workload in kinds])
        return tuple(map(min, zip(*found, strict=True)))


def pipeline_bound(request: Request, shape: Shape, classes: Sequence[UnlikeStages]) -> Seconds:
    """A lower bound in seconds on the step of all pipelines of whole stages of a shape, with fractional layers, under every
    ZeRO stage; infinite where no pipeline is defined.

    m microbatches on at most pp stages. It is the largest of these bounds:

    work       all stages share out the layers and both ends (`shared_out`), m times.
    whole      some stage has at least the N[k] / pp layers of kind k, rounded up, and takes m times their seconds.
    passed     one microbatch passes all layers, forward and backward, without weight gradients.
    filled     work, fill and drain together (`planner.bounds.relaxation.filled_and_drained`), where layers are counted in units
               of weight. With vpp virtual stages, a stage of k layers lets later ones wait for its first one only, which has
               k // vpp >= k / (2 vpp - 1) layers, of the kind that is passed fastest."""
    layers, m = classes[0].layers, shape.microbatches(request.workload)
    room = sum(option.max_stages for option in classes)
    most = min(room, (layers.number + layers.further) // shape.vpp, lengths.longest(request, shape) or room)
    pp, shortest = shape.longest(m, max(most, 1)), lengths.shortest(request)
    if most < shortest:
        return math.inf
    kinds = [option.kind_seconds(shortest == 1) for option in classes]
    ends = [option.end_seconds() for option in classes]
    numbers = (*layers.every, 1, 1)
    every = [
        (tuple(one.both for one in own) + end, option.max_stages) for own, end, option in zip(kinds, ends, classes, strict=True)
    ]
    everything = [(tuple(max(one, 1e-12) for one in seconds), many) for seconds, many in every]
    bound: Seconds = m * shared_out(numbers, everything, pp)
    least = [min(own, key=lambda one: one.both).both for own in zip(*kinds, strict=True)]
    bound = max([bound, *(m * math.ceil(number / pp) * seconds for number, seconds in zip(layers.every, least, strict=True))])
    passed = [min(one.passed for one in own) for own in zip(*kinds, strict=True)]
    bound = max(bound, sum(number * seconds for number, seconds in zip(layers.every, passed, strict=True)))
    filled: Seconds = max(_filled(layers, m, kinds, weights, shape.vpp, classes, pp) for weights, _ in every)
    return max(bound, filled)


def _filled(
    layers: Layers, m: int, kinds: Sequence[Sequence[KindSeconds]], weights: Sequence[float], vpp: int,
    classes: Sequence[UnlikeStages], pp: int,
) -> Seconds:  # fmt: skip
    """The bound of work, fill and drain of pipelines, without the ends; weights: of a layer of each kind."""
    own = weights[: len(layers.kinds)]
    total = sum(weight * number for weight, number in zip(own, layers.every, strict=True))
    fastest = [
        (max(w / one.both for w, one in zip(own, each, strict=True)), option.max_stages)
        for each, option in zip(kinds, classes, strict=True)
    ]
    speeds = sorted((speed for speed, many in fastest for _ in range(many)), reverse=True)[:pp]
    if vpp == 1:
        passed = min(one.waited / w for each in kinds for w, one in zip(own, each, strict=True))
    else:
        passed = min(one.waited for each in kinds for one in each) / max(own) / (2 * vpp - 1)
    if not speeds or passed * max(speeds) / m >= 1 or passed <= 0:
        return 0.0
    return filled_and_drained(total, m, [(speed, passed) for speed in speeds])
