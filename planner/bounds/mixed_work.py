"""The bound of a placement with mixed stages by compute, fill and drain alone, with fractional layers.

It is that of `planner.bounds.relaxation.filled_and_drained`, of stages as fast as their replicas: where all replicas have
equally many microbatches, a stage is as fast as its slowest one, else as all of them together. Neither memory, messages nor
gradients count, so it is quick: it orders the placements, and rules most of them out, before the deadline test."""

from __future__ import annotations

from planner.bounds.relaxation import Pace, filled_and_drained
from planner.costs.mixed_stages import MixedStageCosts, geometry
from planner.space.device_slots import Run, StageSlots
from planner.space.shape import Shape
from sim.units import Seconds

ENDS = ((True, False), (False, False), (False, True))
"""Whether a stage of a pipeline of several is its first and its last."""


class PlacedWork:
    """Bounds of placements. The seconds of a layer are computed once for each position of a run of slots on its nodes."""

    def __init__(self, costs: MixedStageCosts):
        self._costs, self._seconds = costs, dict[Shape, dict[tuple[tuple[str, int, int], ...], Seconds]]()

    def bound(self, shape: Shape, placed: tuple[StageSlots, ...], alike: bool, waits: float) -> Seconds:
        """A lower bound in seconds on the step of every plan with these stages; 0 for a pipeline of one stage.

        alike: all replicas have equally many microbatches. waits: least fraction of a layer's seconds that is its forward
        where schedules split the backward, else 1: for so much of the layers before it a stage waits at the begin and at the
        end of a step."""
        if len(placed) == 1:
            return 0.0
        workload, layer = self._costs.workload, self._seconds.setdefault(shape, {})
        paces = list[Pace]()
        for stage in placed:
            runs = [(run.count / shape.cp, self._layer(layer, shape, run)) for run in stage]
            if min(seconds for _, seconds in runs) <= 0.0:
                return 0.0
            each = [seconds for _, seconds in runs]
            speed = shape.dp / max(each) if alike else sum(many / seconds for many, seconds in runs)
            paces.append((speed, min(each) * waits))
        total = workload.global_batch_size // shape.microbatch_size
        return filled_and_drained(workload.model.layers, total, paces)

    def _layer(self, known: dict[tuple[tuple[str, int, int], ...], Seconds], shape: Shape, run: Run) -> Seconds:
        """Least seconds of a layer for a microbatch on any replica of a run; 0 where the run holds no whole one."""
        key = geometry((run,), shape.tp)
        if key not in known:
            ends = (self._costs.least_seconds(shape, run, one) for one in (ENDS if run.count >= shape.cp else ()))
            known[key] = min((each + min(start, 0.0) for start, each in ends), default=0.0)
        return known[key]
