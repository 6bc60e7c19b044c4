"""Links that the gradients and weights of mixed stages share: least seconds that they take of a step.

Take a link, the stages S whose data-parallel groups load it, and q, the last of them in the pipeline. All gathers of S on the
link take G seconds of it, all reductions R. Where no schedule splits the backward, the step of a replica with m microbatches
takes

    G + R + (m - 1) cycle of stage q     or longer.

Why: the last gather on the link ends after G seconds or later. It is that of a stage up to q, whose first forward ends later
still, and so does the first forward on q. From then on, stage q has m - 1 further forwards, and m - 1 backwards before its last
one. No stage of S begins its last backward before q does, so that all reductions follow. Where weights are gathered after the
optimizer, both R and G follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from planner.costs.context import PlanningContext
from planner.space.device_slots import Run, StageSlots, rows
from planner.space.shape import Shape
from sim.kernels import payloads
from sim.network.collective_costs import CollectiveCosts
from sim.network.paths import LinkName
from sim.plan.parallel_config import ParallelConfig
from sim.units import Seconds


class Load(NamedTuple):
    """Seconds of a link that a stage takes without layers and for each layer: for its gathers, and for these and reductions."""

    stage: int
    fixed: Seconds
    each: Seconds
    gather_fixed: Seconds = 0.0
    gather_each: Seconds = 0.0


PerByte: TypeAlias = dict[LinkName, Seconds]
"""Link -> its seconds for each byte of a payload."""


@dataclass(frozen=True, slots=True)
class RingLoads:
    """Loads of links by the stages of a placement: by link, those of each of its stages in the order of the pipeline."""

    links: tuple[tuple[Load, ...], ...]

    def seconds(self, stage: int, layers: Sequence[int]) -> Seconds:
        """Seconds G + R of the busiest link whose last stage is `stage`. layers: those of each stage."""
        ending = (link for link in self.links if link[-1].stage == stage)
        return max((sum(one.fixed + one.each * layers[one.stage] for one in link) for link in ending), default=0.0)


class Shared(NamedTuple):
    """Least seconds of a link in a step: for gathers of weights before the first microbatch, and for all gathers and
    reductions."""

    gathers: Seconds
    both: Seconds


NOTHING = Shared(0.0, 0.0)
"""A link without loads."""


def least_seconds(link: tuple[Load, ...], layers: int, held: int) -> Shared:
    """Least seconds of a link whose last stage has so many layers. held: the layers of its other stages together."""
    *others, last = link
    more = least_together(others, held)
    return Shared(last.gather_fixed + last.gather_each * layers + more.gathers, last.fixed + last.each * layers + more.both)


def least_together(stages: Sequence[Load], held: int) -> Shared:
    """Least seconds of a link for stages that hold so many layers together, and one each at least."""
    if not stages:
        return NOTHING
    layers = max(held, len(stages))
    gathers = sum(one.gather_fixed for one in stages) + layers * min(one.gather_each for one in stages)
    return Shared(gathers, sum(one.fixed for one in stages) + layers * min(one.each for one in stages))


class MixedRings:
    """Loads of links by mixed stages, computed once for each position of a stage on its nodes."""

    def __init__(self, context: PlanningContext):
        self._context, self._workload = context, context.request.workload
        self._positions: dict[tuple[object, ...], PerByte] = {}
        self._loads: dict[tuple[object, ...], RingLoads] = {}

    def loads(self, shape: Shape, placed: Sequence[StageSlots]) -> RingLoads:
        """The loads of a placement under the ZeRO stage of a shape. Raises NoRoute."""
        config, last = shape.config(self._workload, min(len(placed), 2)), len(placed) - 1
        degrees = shape.tp, shape.dp, shape.cp, shape.ep, shape.etp, shape.zero_stage, shape.zero_shard_size
        key = *degrees, config.gathers_ahead, *map(_positions, placed)
        if key not in self._loads:
            found = dict[LinkName, list[Load]]()
            for stage, runs in enumerate(placed):
                for link, load in self._of_stage(config, degrees, runs, (stage == 0, stage == last)).items():
                    found.setdefault(link, []).append(load._replace(stage=stage))
            self._loads[key] = RingLoads(tuple(dict.fromkeys(map(tuple, found.values()))))
        return self._loads[key]

    def _of_stage(
        self, config: ParallelConfig, degrees: tuple[object, ...], stage: StageSlots, ends: tuple[bool, bool]
    ) -> dict[LinkName, Load]:
        """The load of each link by a stage. ends: whether it is the (first, last)."""
        found: dict[LinkName, Load] = {}
        for operation, held in ((config.reduction, payloads.gradient_bytes), ("all_gather", payloads.parameter_bytes)):
            if operation == "all_gather" and not config.zero_stage:
                continue
            ahead = operation == "all_gather" and config.gathers_ahead
            one, two = (dict(held(self._workload, config, layers, *ends)).get("dp", 0.0) for layers in (1, 2))
            for link, seconds in self._per_byte(config, degrees, stage, operation).items():
                before, fixed, each = found.get(link, Load(0, 0.0, 0.0)), seconds * (2 * one - two), seconds * (two - one)
                gathers = (fixed, each) if ahead else (0.0, 0.0)
                found[link] = Load(0, before.fixed + fixed, before.each + each, *gathers)
        return found

    def _per_byte(self, config: ParallelConfig, degrees: tuple[object, ...], stage: StageSlots, operation: str) -> PerByte:
        """Seconds of each link for a byte of a stage. Stages with equal positions on their nodes load these nodes equally."""
        nodes = {run.cluster.name: _node(run, config.tp) for run in stage}
        if any(run.cluster.fabric for run in stage):  # positions below the leaves matter as well
            nodes = dict.fromkeys(nodes, 0)
        moved = tuple(
            replace(run, first=run.first - nodes[run.cluster.name] * (run.cluster.node.count // config.tp)) for run in stage
        )
        key = *degrees, operation, _positions(moved)
        if key not in self._positions:
            fleets = self._context.fleets
            costs = CollectiveCosts(fleets.fleet, config, rows(moved, config.tp), fleets.capacities)
            self._positions[key] = costs.link_loads(operation).least
        return {_on_node(link, nodes): seconds for link, seconds in self._positions[key].items()}


def _node(run: Run, tp: int) -> int:
    """The first node of a run."""
    return run.first // (run.cluster.node.count // tp)


def _positions(stage: StageSlots) -> tuple[tuple[str, int, int], ...]:
    """The slots of a stage: (cluster, first, number) of every run."""
    return tuple((run.cluster.name, run.first, run.count) for run in stage)


def _on_node(link: LinkName, nodes: dict[str, int]) -> LinkName:
    """A link of a node, so many nodes further. Links between clusters and below leaf switches stay."""
    if link[0] in ("trunk", "leaf"):
        return link
    return (*link[:2], int(link[2]) + nodes[str(link[1])], *link[3:])
