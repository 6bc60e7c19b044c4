"""Timeline chart of a step: one row per class of equivalent ranks, for a plan or for a timeline alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from holmes_sim.charts.gantt import bars, legend, numbers, row_height
from holmes_sim.charts.style import DPI, WIDTH, Picture, listed
from sim.engine.rank_plans import RankPlans
from sim.engine.timeline import Timeline
from sim.errors import HolmesError
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.results import report
from sim.results.breakdown import breakdown, pipeline_rank_of, total
from sim.units import time_text

MOST_ROWS = 32
"""Largest number of rows."""


def pipeline(plan: Plan | PipelinesPlan, timeline: Timeline) -> Figure:
    """One step as a Gantt chart, rows in pipeline order. Raises HolmesError if the timeline is not of this plan."""
    ranks, world, plans = sum(map(len, timeline.alike)), len(plan.placement), RankPlans(plan)
    if ranks != world:
        raise HolmesError(f"the timeline has {ranks} ranks, the plan {world}; give the timeline of this plan")
    rows = rows_of(timeline, plans.stage_number)
    labels = [row_label(plans, group) for group in rows]
    most = max(one.config.pp for one in plans.plans)
    return _figure(timeline, most, rows, labels, _pipeline_title(plan, timeline, len(rows)))


def timeline(timeline: Timeline, sets: Sequence[str] = ()) -> Figure:
    """A Gantt chart without a plan: rows are labelled with their stages. Raises TimelineError if a rank has no stage.

    sets: names of two sets of ranks, which a step names stages 0 and 1; their bars are layers, so that microbatches have no
    numbers."""
    pp_ranks, spans = pipeline_rank_of(timeline), timeline.by_rank()
    rows, pp = rows_of(timeline, pp_ranks.__getitem__), len(set(pp_ranks.values()))
    labels = []
    for group in rows:
        stages = sorted({span.stage for span in spans[group[0]] if span.stage >= 0 and span.lane == "compute"})
        name = sets[stages[0]] if sets else f"stage{'s' if len(stages) > 1 else ''} {listed(stages)}"
        labels.append(f"{name} ({_ranks(group)})")
    seconds = dict(total(breakdown(timeline)).seconds)
    shares = {kind: share.mean / timeline.step_s for kind, share in seconds.items()}
    left_out = f"\n{len(rows)} of {len(timeline.alike)} classes of ranks shown" if len(rows) < len(timeline.alike) else ""
    how = f"{timeline.compute} compute, " if timeline.compute else ""
    how += f"{timeline.scale:g} times as long as planned, " if timeline.scale != 1 else ""
    title = (
        f"{timeline.name}: {timeline.origin} step {time_text(timeline.step_s)}, {how}"
        f"bubble {shares['bubble']:.1%}, exposed communication {shares['exposed']:.1%}{left_out}"
    )
    return _figure(timeline, pp, rows, labels, title, not sets)


def _figure(
    timeline: Timeline, pp: int, rows: Sequence[tuple[int, ...]], labels: Sequence[str], title: str, numbered: bool = True
) -> Figure:
    """The chart of given rows; `numbered`: with the numbers of microbatches."""
    ranks = [group[0] for group in rows]
    space = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    figure = Picture(figsize=(WIDTH, 1.9 + row_height(len(rows)) * len(rows)), dpi=DPI, layout=space)
    axes = figure.add_subplot(xlim=(0.0, timeline.step_s), xlabel="time in the step (s)")
    drawn = bars(axes, pp, timeline.spans, ranks, labels)
    figure.suptitle(title, fontsize=11)
    figure.legend(handles=legend(drawn), loc="outside lower center", ncol=5, frameon=False, fontsize=9)
    figure.draw_without_rendering()  # fixes the layout, so that the available width is known
    if numbered:
        numbers(axes, timeline.spans, ranks)
    return figure


def rows_of(timeline: Timeline, pp_rank_of: Callable[[int], int], most: int = MOST_ROWS) -> list[tuple[int, ...]]:
    """Classes of ranks to show, by pipeline rank (`pp_rank_of`). If they are too many: some of each, or of evenly
    spaced pipeline ranks.
    """
    by_pp_rank: dict[int, list[tuple[int, ...]]] = {}
    for group in sorted(timeline.alike, key=lambda group: (pp_rank_of(group[0]), group[0])):
        by_pp_rank.setdefault(pp_rank_of(group[0]), []).append(group)
    pp_ranks = sorted(by_pp_rank)
    if len(pp_ranks) > most:
        pp_ranks = [pp_ranks[i * (len(pp_ranks) - 1) // (most - 1)] for i in range(most)]
    each = max(1, most // len(pp_ranks))
    if sum(len(by_pp_rank[pp_rank]) for pp_rank in pp_ranks) <= most:
        each = most
    return [group for pp_rank in pp_ranks for group in by_pp_rank[pp_rank][:each]]


def row_label(plans: RankPlans, group: tuple[int, ...]) -> str:
    """`stage 0 · ib · tp 4 (ranks 0-15)`, after the pipeline where they are unlike; the ranks of a tensor-parallel group do the
    same at the same time."""
    pipeline, pp_rank = plans.stage_of(group[0])
    plan, _ = plans.of(group[0])
    stages, tp = plan.stages_of(pp_rank), plan.config.tp_of(pp_rank)
    clusters = "+".join(dict.fromkeys(plans.plan.placement[rank].cluster for rank in group))
    where = f"pipeline {pipeline} · " if pipeline >= 0 else ""
    degree = f" · tp {tp}" if tp > 1 else ""
    return f"{where}stage{'s' if len(stages) > 1 else ''} {listed(stages)} · {clusters}{degree} ({_ranks(group)})"


def _ranks(group: tuple[int, ...]) -> str:
    """Ranks as text."""
    if len(group) == 1:
        return f"rank {group[0]}"
    if group[-1] - group[0] == len(group) - 1:
        return f"ranks {group[0]}-{group[-1]}"
    return f"{len(group)} ranks from {group[0]}"


def layout_words(plan: Plan | PipelinesPlan) -> str:
    """Degrees and schedule: `tp 2 · pp 4 · dp 1 · 1f1b`, or `2 unlike pipelines · 1f1b`."""
    if isinstance(plan, PipelinesPlan):
        return f"{len(plan.pipelines)} unlike pipelines · {plan.schedule}"
    config = plan.config
    return f"tp {config.tp_text} · pp {config.pp} · dp {config.dp_text} · {config.schedule}"


def _pipeline_title(plan: Plan | PipelinesPlan, timeline: Timeline, rows: int) -> str:
    """Topology, model, step time, shares and layout."""
    numbers = report.predict(plan, timeline)
    left_out = f" · {rows} of {len(timeline.alike)} classes of ranks shown" if rows < len(timeline.alike) else ""
    return (
        f"{plan.topology.name} · {plan.workload.model.name}: {timeline.origin} step {time_text(timeline.step_s)}, "
        f"bubble {numbers.bubble_fraction:.1%}, exposed communication {numbers.exposed_communication_s / timeline.step_s:.1%}\n"
        f"{layout_words(plan) if isinstance(plan, PipelinesPlan) else _with_microbatches(plan)}{left_out}"
    )


def _with_microbatches(plan: Plan) -> str:
    """Degrees, schedule and microbatches of a plan."""
    config = plan.config
    counts = sorted(set(config.num_microbatches))
    microbatches = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    virtual = f" with vpp {config.vpp}, later virtual stages paler" if config.vpp > 1 else ""
    more = "".join(f" · {key} {degree}" for key, degree in config.further_degrees.items())
    return (
        f"tp {config.tp_text} · pp {config.pp} · dp {config.dp_text}{more} · {config.schedule}{virtual} · "
        f"{microbatches} microbatches of {config.microbatch_words} per replica"
    )
