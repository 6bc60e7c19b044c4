"""Exchanges of tokens that pairs of passes hide (`sim.kernels.paired_passes`): their seconds, and how far they slow compute."""

from __future__ import annotations

from sim.analytic.stage_costs import StageCosts
from sim.kernels import payloads
from sim.kernels.paired_passes import HIDDEN
from sim.plan import schedules
from sim.units import Bytes, Seconds


def exchange_seconds(at: StageCosts, layers: int, first: bool, last: bool) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of the exchanges of tokens of a microbatch on a stage that pairs hide, and for which other
    passes of the schedule wait; 0 where it has no pairs."""
    forward, backward = (
        sum(at.collectives.seconds(*one) for one in _exchanges(at, layers, first, last, way)) for way in (False, True)
    )
    return forward, backward


def slowdown(at: StageCosts, layers: int, first: bool, last: bool) -> float:
    """The least share by which such an exchange slows compute beside it; 0 where there is none."""
    every = [one for way in (False, True) for one in _exchanges(at, layers, first, last, way)]
    return min((at.collectives.interference(*one[:3]) for one in every), default=0.0)


def _exchanges(at: StageCosts, layers: int, first: bool, last: bool, backward: bool) -> list[tuple[str, str, Bytes, float]]:
    """(kind of group, operation, payload, count) of the collectives of a pass that pairs hide."""
    if not schedules.is_paired(at.config.schedule):
        return []
    every = payloads.layer_collectives(at.workload.of_stage(layers, first, last), at.config, layers, backward, at.stages)
    return [one for one in every if one[0] == HIDDEN]
