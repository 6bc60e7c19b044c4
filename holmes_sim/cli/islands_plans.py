"""Answers about plans of islands: `holmes-sim plan --sync`, and `simulate` and `show` of their files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holmes_sim.cli import output as out

if TYPE_CHECKING:
    from holmes_sim.islands import SimulatedIslands
    from planner.request import Wishes
    from sim.hardware.topology import Topology
    from sim.plan.islands import IslandsPlan
    from sim.workload.workload import Workload


def plan(
    where: Topology,
    workload: Workload,
    sync: str,
    wishes: Wishes,
    limits: tuple[float, str],
    output: Path | None,
    as_json: bool,
) -> None:
    """Plan islands, print and write the plan. `limits`: time limit in seconds, and the launch target."""
    from holmes_sim import islands
    from holmes_sim.intervals import plan_facts
    from sim.formats import islandsfile, planfile
    from sim.plan.islands import IslandsPlan

    seconds, launch = limits
    out.can_be_written(output)
    with out.progress("planning", seconds) as progress:
        found = islands.plan_islands(where, workload, sync, wishes, seconds, progress, launch)
    best = found.plan
    text = islandsfile.to_json(best) if isinstance(best, IslandsPlan) else planfile.to_json(best, plan_facts(best))
    out.write(output, text)
    if as_json:
        sys.stdout.write(text)
        return
    from holmes_sim import commands, printing

    out.show(printing.planned_islands(found))
    if not isinstance(best, IslandsPlan):
        out.show(printing.simulated(commands.simulate(best)))
    out.note(f"Planned in {found.seconds:.1f} s." + (f" Written to {output}." if output else ""))


def simulate(plan: IslandsPlan, chart: Path | None, as_json: bool) -> None:
    """Simulate outer periods, draw and print them."""
    from holmes_sim import islands

    with out.progress("simulating"):
        run = islands.simulate_islands(plan)
    _answer(run, chart, as_json)


def _answer(run: SimulatedIslands, chart: Path | None, as_json: bool) -> None:
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.outer_periods(run), chart)
    if as_json:
        out.show_json(run.facts())
        return
    from holmes_sim import printing

    out.show(printing.simulated_islands(run))
    out.note_written(chart)


def show(plan: IslandsPlan, chart: Path | None, as_json: bool) -> None:
    """Print a plan of islands, or draw its outer periods."""
    from sim.formats import islandsfile

    if as_json and chart is None:
        out.show_json(islandsfile.facts(plan))
        return
    simulate(plan, chart, as_json)
