"""A plan of unlike pipelines as one HTML page: its stages, the sums of its gradients, and its simulated step."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from html import escape

from holmes_sim.printing import pipelines as tables
from holmes_sim.printing import plans
from holmes_sim.reporting.colours import css
from holmes_sim.reporting.markup import number, table
from holmes_sim.reporting.page import Page, assembled, made_by, script, tiles
from holmes_sim.reporting.sections.pipeline import timeline
from holmes_sim.reporting.sections.stages import cuts, stages
from holmes_sim.reporting.sections.step_time import explained
from holmes_sim.unlike_pipelines import SimulatedPipelines
from holmes_sim.warnings import pipelines_warnings
from sim.formats import pipelinesfile
from sim.plan.pipelines import PipelinesPlan


def pipelines_page(run: SimulatedPipelines) -> Page:
    """The whole page of a simulated step. Equal steps give equal bytes."""
    plan = run.plan
    parts = {
        "title": escape(f"{plan.workload.model.name} on {plan.topology.name}"),
        "style": css(max(one.config.pp for one in plan.pipelines), 1),
        "heading": escape(plans.heading(plan).plain),
        "layout": escape(f"{len(plan.pipelines)} unlike pipelines, {plan.schedule}"),
        "tiles": tiles(_tiles(run)),
        "lead": _lead(plan),
        "foot": escape(f"Plan {pipelinesfile.digest(plan)} by {made_by(plan.made_by)}"),
        "script": script(),
    }
    warnings = "".join(f"<li>{escape(one.text)}</li>" for one in pipelines_warnings(plan))
    sections = [
        ("warnings", "Warnings", f'<ul class="warnings">{warnings}</ul>' if warnings else ""),
        ("stages", "Pipelines and their stages", "".join(_stages(run))),
        ("gradients", "Sums of gradients", _sums(plan)),
        ("pipeline", "Timeline of a step", timeline(run)),
        ("seconds", "Where the step time goes", explained(run.explanation())),
    ]
    return assembled(parts, sections)


def _lead(plan: PipelinesPlan) -> str:
    """The bound and its space, if they are known."""
    rows = "".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in tables.bound(plan))
    return f'<dl class="lead">{rows}</dl>' if rows else ""


def _tiles(run: SimulatedPipelines) -> Iterator[tuple[str, str]]:
    """Tiles with the numbers of the simulated step."""
    for name, key, text in plans.prediction_rows(run.prediction, run.plan):
        value, unit, rest = re.fullmatch(r"(\S+)( (?:s|ms|us|J|USD)\b)?(.*)", text).groups("")  # type: ignore[union-attr]
        yield name, number(f"report/{key}", getattr(run.prediction, key), value + unit) + escape(rest)


def _stages(run: SimulatedPipelines) -> Iterator[str]:
    """A table of the stages of each pipeline, with its layout and ranks."""
    first, peaks = 0, run.prediction.peak_memory_bytes
    for index, (plan, rows) in enumerate(zip(run.plan.pipelines, run.pipeline_ranks, strict=True)):
        rank, own = run.plan.first_ranks[index], peaks[first : first + plan.config.pp]
        layout = escape(plans.layout(plan).partition("   (")[0])
        samples = f"{plan.workload.global_batch_size} of {run.plan.workload.global_batch_size} samples"
        yield f"<h3>Pipeline {index}</h3><p>{layout}; ranks {rank} to {rank + plan.config.world_size - 1}, {samples}.</p>"
        yield stages(plan, rows, own, f"pipelines/{index}/", f"Stages of pipeline {index}") + cuts(plan)
        first += plan.config.pp
    yield (
        "<p>Times are those of a rank of the slowest class of each stage: compute, exposed (waiting for the network), bubble "
        "(waiting for other ranks).</p>"
    )


def _sums(plan: PipelinesPlan) -> str:
    """The table of the groups that sum the gradients of each section of layers."""
    shown = tables.sums(plan)
    headers = [str(column.header) for column in shown.columns]
    rows = itertools.zip_longest(*([escape(str(cell)) for cell in column.cells] for column in shown.columns), fillvalue="")
    words = ("layers", "NIC", "transport", "cluster")
    return table(headers, rows, "Gradients", words=words) + (
        "<p>A section is a run of layers that no stage of any pipeline cuts. Each slice of its weights has a group with one "
        "rank of each replica.</p>"
    )
