"""Prediction of a plan from its simulated timeline: throughput, MFU, bubble, exposed communication, memory and cost.

Every second of every rank is compute, exposed communication (a blocking collective or a wait for the network) or bubble (a wait
for work); the three add up to the step. Shares are means over ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.analytic import plan_costs
from sim.engine.timeline import Timeline
from sim.kernels import memory
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.results import cost_energy
from sim.results.sums import Sums, seconds_by_rank
from sim.units import TERA, Seconds


@dataclass(frozen=True, slots=True)
class PipelineRankReport:
    """Seconds of one rank of a pipeline rank, taken from its slowest class of ranks."""

    pp_rank: int
    compute: Seconds
    exposed: Seconds
    bubble: Seconds


def split(sums: Sums) -> tuple[Seconds, Seconds, Seconds]:
    """(compute, exposed communication, bubble) seconds of one rank."""
    compute = sum(seconds for (lane, _, _), seconds in sums.items() if lane == "compute")
    exposed = sum(seconds for (_, kind, _), seconds in sums.items() if kind == "exposed")
    bubble = sum(seconds for (_, kind, _), seconds in sums.items() if kind == "bubble")
    return compute, exposed, bubble


def predict(plan: Plan | PipelinesPlan, timeline: Timeline) -> Prediction:
    """The predicted numbers of a plan, from its simulated timeline; of unlike pipelines, peak memory has the pipeline ranks of
    one pipeline after the other."""
    step, ranks = timeline.step_s, len(plan.placement)
    pipelines = plan.pipelines if isinstance(plan, PipelinesPlan) else (plan,)
    exposed = bubble = 0.0
    sums, computed = seconds_by_rank(timeline), dict[int, Seconds]()
    for group in timeline.alike:
        compute, communication, waiting = split(sums[group[0]])
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
        peak_memory_bytes=tuple(peak for one in pipelines for peak in memory.peak_memory(one)),
        bubble_fraction=bubble / step,
        exposed_communication_s=exposed,
        upper_bound_fraction=_upper_bound_seconds(plan, pipelines) / step,
        usd_per_token=cost_energy.usd_per_token(plan, step),
        joules_per_token=cost_energy.joules_per_token(plan, step, computed),
    )


def _upper_bound_seconds(plan: Plan | PipelinesPlan, pipelines: tuple[Plan, ...]) -> Seconds:
    """`plan_costs.upper_bound_seconds`; of unlike pipelines, with the degrees of the pipeline that is fastest by it."""
    each = (plan_costs.upper_bound_seconds(one) / one.workload.global_batch_size for one in pipelines)
    return plan.workload.global_batch_size * min(each)


def of_pipelines(plan: PipelinesPlan, timeline: Timeline) -> tuple[tuple[PipelineRankReport, ...], ...]:
    """Seconds of every pipeline rank of each of unlike pipelines, from the class of its ranks that computes longest."""
    sums, found = seconds_by_rank(timeline), []
    for first, one in zip(plan.first_ranks, plan.pipelines, strict=True):
        rows: dict[int, PipelineRankReport] = {}
        for group in timeline.alike:
            for own in (rank - first for rank in group if first <= rank < first + one.config.world_size):
                row = PipelineRankReport(one.config.coordinates(own)[2], *split(sums[group[0]]))
                if row.pp_rank not in rows or row.compute > rows[row.pp_rank].compute:
                    rows[row.pp_rank] = row
        found.append(tuple(rows[pp_rank] for pp_rank in sorted(rows)))
    return tuple(found)


def pipeline_ranks(plan: Plan, timeline: Timeline) -> tuple[PipelineRankReport, ...]:
    """Seconds of every pipeline rank, from the class of its ranks that computes longest."""
    found: dict[int, PipelineRankReport] = {}
    sums = seconds_by_rank(timeline)
    for group in timeline.alike:
        pp_rank = plan.config.coordinates(group[0])[2]
        row = PipelineRankReport(pp_rank, *split(sums[group[0]]))
        if pp_rank not in found or row.compute > found[pp_rank].compute:
            found[pp_rank] = row
    return tuple(found[pp_rank] for pp_rank in sorted(found))
