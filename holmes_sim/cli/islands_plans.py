"""Answers about plans of islands: `holmes-sim plan --sync`, and `simulate` and `show` of their files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from holmes_sim.cli import output as out

if TYPE_CHECKING:
    from planner.request import Wishes
    from sim.hardware.topology import Topology
    from sim.plan.islands import IslandsPlan
    from sim.plan.plan import Plan
    from sim.workload.workload import Workload

INTERRUPTED = "Interrupted: this is the best plan found so far."
NONE: Mapping[str, str | None] = MappingProxyType({})
"""No faults."""
HEAD = 200
"""Characters at the start of a file that tell a plan of islands (`sim.formats.islandsfile.is_islands`)."""


def refuse(file: str | Path, expected: str, answer: str) -> None:
    """Raise PlanError if a file is a plan of islands where something else is expected; `answer` says which command helps."""
    from sim.errors import PlanError
    from sim.formats.islandsfile import ISLANDS_FORMAT, is_islands

    try:
        with Path(file).open(encoding="utf-8", errors="replace") as lines:
            text = lines.read(HEAD)
    except OSError:  # the name of a shipped topology; or the reader of the file says why it cannot be read
        return
    if is_islands(text):
        line = text[: text.index(ISLANDS_FORMAT)].count("\n") + 1
        raise PlanError(f"{file}:{line}: format: this is a plan of islands; {expected} is expected; {answer}")


def plan(
    where: Topology,
    workload: Workload,
    sync: str,
    wishes: Wishes,
    limits: tuple[float, str],
    output: Path | None,
    printed: tuple[str | None, bool],
) -> None:
    """Plan islands, print and write the plan. `limits`: time limit in seconds, and the launch target. `printed`: tokens of a
    whole training run, if it is printed, and whether the plan is printed as JSON."""
    from holmes_sim import islands
    from holmes_sim.intervals import plan_facts
    from sim.formats import islandsfile, planfile
    from sim.plan.islands import IslandsPlan

    (seconds, launch), (tokens, as_json) = limits, printed
    out.can_be_written(output)
    with out.progress("planning", seconds) as progress:
        found = islands.plan_islands(where, workload, sync, wishes, seconds, progress, launch)
    out.note(INTERRUPTED if found.answer.interrupted else "")
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
    if tokens is not None:
        _show_whole_run(best, tokens)
    out.note(f"Planned in {found.seconds:.1f} s." + (f" Written to {output}." if output else ""))


def _show_whole_run(plan: Plan | IslandsPlan, tokens: str) -> None:
    """Print the days, money and energy of a whole training run."""
    from holmes_sim import islands_whole_runs, printing, whole_runs
    from sim.plan.islands import IslandsPlan

    if isinstance(plan, IslandsPlan):
        out.show(printing.islands_whole_run(islands_whole_runs.whole_run_islands(plan, tokens)))
    else:
        out.show(printing.whole_run(whole_runs.whole_run(plan, tokens)))


def simulate(
    plan: IslandsPlan, chart: Path | None, as_json: bool, faults: Mapping[str, str | None] = NONE, leave: str | None = None
) -> None:
    """Simulate outer periods, with faults and with an island that leaves where asked; draw and print them."""
    from holmes_sim import islands, islands_elastic, islands_leaving, islands_trouble

    slow, weak, flaps, jitter = (faults.get(kind) for kind in ("stragglers", "degrade", "flaps", "jitter"))
    has_faults = bool(slow or weak or flaps or jitter)
    with out.progress("simulating"):
        run = islands.simulate_islands(plan)
        trouble = islands_trouble.trouble_islands(plan, slow, weak, flaps, jitter=jitter) if has_faults else None
        once = leave is not None and "@" in leave
        left = islands_leaving.without_island(plan, leave) if leave is not None and once else None
        elastic = islands_elastic.elastic_islands(plan, (leave,)) if leave is not None and not once else None
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.outer_periods(run), chart)
    if as_json:
        more = {"trouble": trouble, "leave": left, "elastic": elastic}
        out.show_json(run.facts() | {key: found.facts() for key, found in more.items() if found is not None})
        return
    from holmes_sim import printing

    out.show(printing.simulated_islands(run))
    for found in (trouble, left):
        if found is not None:
            out.show(printing.islands_trouble(found))
    if elastic is not None:
        out.show(printing.elastic_islands(elastic))
    out.note_written(chart)


def goodput(
    plan: IslandsPlan,
    times: tuple[str, str],
    rates: tuple[list[str], list[str]],
    simulated: tuple[float, int | None],
    tokens: str | None,
    as_json: bool,
) -> None:
    """Print the goodput of islands, and that of one synchronous run of their devices. `times`: of a checkpoint and a restart;
    `rates`: of failures and of leaves; `simulated`: days and number of runs; `tokens`: of a whole run, if it is printed."""
    from holmes_sim import islands_goodput, islands_whole_runs

    days, seeds = simulated
    with out.progress("simulating"):
        found = islands_goodput.goodput_islands(plan, *times, *rates, days, None if seeds is None else range(seeds))
    share = found.elastic.rate.goodput if found.elastic is not None else None
    whole = islands_whole_runs.whole_run_islands(plan, tokens, found.runs, share) if tokens is not None else None
    if as_json:
        out.show_json(found.facts() | ({"whole_run": whole.facts()} if whole is not None else {}))
        return
    from holmes_sim import printing

    out.show(printing.islands_goodput(found))
    if found.elastic is not None:
        out.show(printing.elastic_islands(found.elastic))
    if whole is not None:
        out.show(printing.islands_whole_run(whole))


def show(plan: IslandsPlan, chart: Path | None, as_json: bool) -> None:
    """Print a plan of islands, or draw its outer periods."""
    from sim.formats import islandsfile

    if as_json and chart is None:
        out.show_json(islandsfile.facts(plan))
        return
    simulate(plan, chart, as_json)
