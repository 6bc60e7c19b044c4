"""The score of a launch: today's job, where its seconds go, and what the best plan gives."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.intervals import step_range
from holmes_sim.printing.explanations import losses
from holmes_sim.printing.plans import heading, layout, prediction, stages
from holmes_sim.printing.tables import STYLE, grid
from holmes_sim.resolution import is_close
from holmes_sim.scoring import Scored
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.units import time_text


def scored(found: Scored, command: str) -> Group:
    """Tables of a score; `command` is the command line that made it."""
    plan = found.today.plan
    parts: list[Text | Table | Group] = [heading(plan), Text(f"today: {layout(plan).partition('   (')[0]}"), Text()]
    parts += [stages(plan, found.today.pipeline_ranks), *map(Text, _memory(found)), Text()]
    parts += [prediction(found.today.prediction, plan), Text(), losses(found.explanation), Text()]
    parts += [Text("Not modelled, may change the step time:", style=STYLE)] if found.job.not_modelled else []
    parts += [Text(f"  {line}") for line in found.job.not_modelled]
    parts += [Text(f"Assumed: {line}.") for line in found.job.assumed]
    return Group(*parts, *_best(found, command))


def _memory(found: Scored) -> list[str]:
    """A warning where the memory of today's job is short."""
    if not found.fits:
        return ["Warning: by the memory model today's job needs more than a device has; it would end for want of memory."]
    if not found.has_headroom:
        free = found.today.plan.topology.memory_headroom
        return [f"Warning: today's job leaves less than {free:.0%} of a device's memory free; plans leave that much."]
    return []


def _best(found: Scored, command: str) -> list[Text | Table]:
    if found.best is None:
        return [Text(f"No best plan: {found.reason}.")]
    today, best = found.today.plan.annotated(prediction=found.today.prediction), found.best.plan
    assert best.prediction is not None
    table = grid(f"Today and the best plan for {found.job.target}", "plan", "step", "80 % range", "tokens/s", "MFU", "layout")
    for name, plan, numbers in (("today", today, today.prediction), ("best", best, best.prediction)):
        assert numbers is not None
        table.add_row(name, *_cells(plan, numbers))
    return [table, Text(_verdict(found, today, best, command))]


def _cells(plan: Plan, numbers: Prediction) -> tuple[str, ...]:
    spread = step_range(numbers.step_s, plan).text
    return (
        time_text(numbers.step_s),
        spread,
        f"{numbers.tokens_per_s:,.0f}",
        f"{numbers.mfu:.1%}",
        layout(plan).partition("   (")[0],
    )


def _verdict(found: Scored, today: Plan, best: Plan, command: str) -> str:
    """How much faster the best plan is, and the commands that give it."""
    faster = found.faster or 0.0
    if faster <= 0 and found.fits:
        return "The search found no faster plan for this framework than today's."
    close = " The two are so close that measured steps may order them the other way." if is_close(best, today) else ""
    fast = f"The best plan is {faster:.1%} faster than today's job." if found.fits else "The best plan fits the memory."
    export = f"holmes-sim export plan.json --to {found.job.target} -o launch"
    return f"{fast}{close} To launch it: {command} -o plan.json, then {export}."
