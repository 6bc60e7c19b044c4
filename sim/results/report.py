"""Timeline -> Report: what a step means in numbers.

Every second of every rank is compute, a blocking collective or an exposed wait for the network (exposed communication), or
waiting for work (bubble); the three add up to the step. Shares are means over ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.analytic import plan_costs
from sim.engine.timeline import Span, Timeline
from sim.kernels import memory
from sim.plan.plan import Plan, Prediction
from sim.results import cost_energy
from sim.units import TERA, Seconds


@dataclass(frozen=True, slots=True)
class PlaceReport:
    """Seconds of one rank of a pipeline place, the slowest class of it."""

    place: int
    compute: Seconds
    exposed: Seconds
    bubble: Seconds


def split(spans: tuple[Span, ...]) -> tuple[Seconds, Seconds, Seconds]:
    """(compute, exposed communication, bubble) seconds of one rank's spans."""
    compute = sum(s.seconds for s in spans if s.lane == "compute")
    exposed = sum(s.seconds for s in spans if s.kind == "exposed")
    bubble = sum(s.seconds for s in spans if s.kind == "bubble")
    return compute, exposed, bubble


def predict(plan: Plan, timeline: Timeline) -> Prediction:
    """The numbers that a plan promises, from its simulated timeline."""
    step, ranks = timeline.step_s, plan.config.world_size
    exposed = bubble = 0.0
    spans, computed = timeline.by_rank(), dict[int, Seconds]()
    for group in timeline.alike:
        compute, communication, waiting = split(spans[group[0]])
        computed |= dict.fromkeys(group, compute)
        exposed += communication * len(group) / ranks
        bubble += waiting * len(group) / ranks
    peak = sum(plan.fleet.spec(device).peak_of(plan.workload.precision) for device in plan.placement)
    return Prediction(
        step_s=step,
        samples_per_s=plan.workload.global_batch_size / step,
        tokens_per_s=plan.workload.tokens / step,
        tflops_per_device=timeline.flops / step / ranks / TERA,
        mfu=timeline.flops / step / peak,
        peak_memory_bytes=memory.peak_memory(plan),
        bubble_fraction=bubble / step,
        exposed_communication_s=exposed,
        upper_bound_fraction=plan_costs.upper_bound_seconds(plan) / step,
        usd_per_token=cost_energy.usd_per_token(plan, step),
        joules_per_token=cost_energy.joules_per_token(plan, step, computed),
    )


def places(plan: Plan, timeline: Timeline) -> tuple[PlaceReport, ...]:
    """Where the time goes at every pipeline place: of its classes of ranks, the one that computes longest."""
    found: dict[int, PlaceReport] = {}
    spans = timeline.by_rank()
    for group in timeline.alike:
        place = plan.config.place(group[0])[2]
        row = PlaceReport(place, *split(spans[group[0]]))
        if place not in found or row.compute > found[place].compute:
            found[place] = row
    return tuple(found[place] for place in sorted(found))
