"""holmes-sim show: print or draw a topology, a plan and its placement, a plan of islands or two sets of ranks, a timeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes_sim.cli import completion, disaggregated_plans, islands_plans
from holmes_sim.cli import output as out
from holmes_sim.cli import unlike_pipelines as unlike
from holmes_sim.cli.options import Json

if TYPE_CHECKING:
    from sim.engine.timeline import Timeline
    from sim.hardware.topology import Topology
    from sim.plan.plan import Plan

NAME = "show"
ORDER = 40
EXAMPLE = "holmes-sim show holmes-hybrid-4 -o fleet.png"


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TOPO|PLAN|TIMELINE",
            help="A topology (file or name), a plan or a timeline.",
            autocompletion=completion.shipped("topologies", ".yaml", ".yml", ".json"),
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="File to draw a picture to (png, svg, pdf).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print or draw a topology, a plan and the placement of its ranks, or the seconds of a timeline by kind."""
    with out.progress(f"reading {what}"):
        from holmes_sim import unlike_pipelines
        from sim.disaggregation.plan import DisaggregatedPlan
        from sim.engine.timeline import Timeline
        from sim.plan.islands import IslandsPlan
        from sim.plan.pipelines import PipelinesPlan

        found = unlike_pipelines.read_anything(what)
    if isinstance(found, PipelinesPlan):
        unlike.show(found, output, as_json)
        return
    if isinstance(found, IslandsPlan):
        islands_plans.show(found, output, as_json)
        return
    if isinstance(found, DisaggregatedPlan):
        disaggregated_plans.show(found, output, as_json)
        return
    if isinstance(found, Timeline):
        _timeline(found, output, as_json)
    else:
        _topology_or_plan(found, output, as_json)
    if not as_json:
        out.note_written(output)


def _topology_or_plan(found: Topology | Plan, output: Path | None, as_json: bool) -> None:
    from sim.plan.plan import Plan

    if output is not None:
        with out.progress("drawing"):
            from holmes_sim import charts

            out.save(charts.placement(found) if isinstance(found, Plan) else charts.topology(found), output)
    if as_json:
        from holmes_sim.intervals import plan_facts
        from sim.formats import planfile, topology

        out.show_json(planfile.facts(found, plan_facts(found)) if isinstance(found, Plan) else topology.written(found))
        return
    from holmes_sim import commands, printing, warnings

    if isinstance(found, Plan):
        with out.progress("simulating"):
            run = commands.simulate(found)
        out.note(warnings.unconfirmed(found, run.timeline.step_s))
        out.show(printing.simulated(run))
        out.show(printing.groups(found))
    else:
        out.show(printing.topology(found))


def _timeline(found: Timeline, output: Path | None, as_json: bool) -> None:
    if output is not None:
        with out.progress("drawing"):
            from holmes_sim import charts

            out.save(charts.timeline(found), output)
    if as_json:
        from sim.results import breakdown

        out.show_json(breakdown.facts(found))
        return
    from holmes_sim import printing

    out.show(printing.timeline(found))
