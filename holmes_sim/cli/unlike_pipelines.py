"""Answers about plans of unlike pipelines: `simulate` and `show` of their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holmes_sim.cli import output as out

if TYPE_CHECKING:
    from sim.plan.pipelines import PipelinesPlan


def refuse(path: Path, others: Mapping[str, object]) -> None:
    """Raise HolmesError for options that are for plans of alike replicas."""
    from sim.errors import HolmesError

    if given := [f"--{name}" for name, value in others.items() if value]:
        raise HolmesError(f"{path}: a plan of unlike pipelines takes no {', '.join(given)}")


def simulate(plan: PipelinesPlan, trace: Path | None, chart: Path | None, explain: bool, as_json: bool) -> None:
    """Simulate a step, write its timeline, draw it, print it and explain it."""
    from holmes_sim import unlike_pipelines, warnings
    from sim.engine import timeline

    with out.progress("simulating"):
        run = unlike_pipelines.simulate_pipelines(plan)
    out.note(warnings.unconfirmed(plan, run.timeline.step_s))
    out.write(trace, timeline.to_json(run.timeline) if trace else "")
    if chart is not None:
        with out.progress("drawing"):
            from holmes_sim import charts

            out.save(charts.pipeline(plan, run.timeline), chart)
    explanation = run.explanation() if explain else None
    if as_json:
        out.show_json(run.facts() | ({"explanation": explanation.facts()} if explanation else {}))
        return
    from holmes_sim import printing

    out.show(printing.simulated_pipelines(run))
    if explanation is not None:
        out.show(printing.explained(explanation))
    out.note_written(trace, chart)


def show(plan: PipelinesPlan, chart: Path | None, as_json: bool) -> None:
    """Print a plan of unlike pipelines and its simulated step, and draw its placement."""
    from sim.formats import pipelinesfile

    if chart is not None:
        with out.progress("drawing"):
            from holmes_sim import charts

            out.save(charts.placement(plan), chart)
    if as_json:
        out.show_json(pipelinesfile.facts(plan))
        return
    simulate(plan, None, None, False, as_json)
    out.note_written(chart)
