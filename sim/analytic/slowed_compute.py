"""Compute of a stage that collectives beside it slow down (`sim.analytic.evaluator`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile

from sim.analytic.stage_costs import StageCosts
from sim.hardware.device_spec import DeviceSpec
from sim.kernels import beside, compute
from sim.kernels.beside import Exchange
from sim.plan.program import BESIDE, TENSOR
from sim.units import Seconds


def slowed_compute(spec: DeviceSpec, at: StageCosts, layers: int, first: bool, last: bool) -> tuple[Seconds, Seconds]:
    """(forward, backward) compute seconds of a stage and microbatch by which collectives make its passes longer.

    Compute beside exchanges (`sim.kernels.beside`) follows other compute, one exchange after the other. It counts up to the
    first exchange that it does not hide: from there on a pass waits for part of the time for which collectives last, so that
    the rest is left out, for a lower bound."""
    shape = at.workload.of_stage(layers, first, last), at.config, layers
    every = [beside.exchanges(*shape, way) for way in (False, True)]
    windows = beside.windows(spec, *shape) if any(every) else {}
    included = compute.includes_collectives(spec, at.workload, at.config)

    def is_hidden(one: Exchange) -> bool:
        whole = at.collectives.seconds(one.group, BESIDE[one.kind], one.nbytes, one.times)
        return whole <= windows[one.operation] or (included and one.kind in TENSOR)

    def left_out(exchanges: Sequence[Exchange]) -> Seconds:
        return sum(windows[operation] for operation in {one.operation for one in dropwhile(is_hidden, exchanges)})

    forward, backward = at.computed(spec, layers, first, last)
    return forward - left_out(every[False]), backward - left_out(every[True])
