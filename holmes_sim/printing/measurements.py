"""Tables of a timeline: seconds by kind, and a comparison with the prediction and the simulation of its plan."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.measurement import Line, MeasuredStep
from holmes_sim.printing.plans import heading, layout
from holmes_sim.printing.tables import STYLE, grid
from sim.engine.timeline import Timeline
from sim.plan.pipelines import PipelinesPlan
from sim.results.breakdown import KINDS, breakdown, total
from sim.units import GIBI, MILLI, Seconds, time_text

MEMORY = {"allocated": "allocated by torch", "reserved": "reserved by torch", "outside": "outside torch"}
"""Names of the kinds of memory as tables print them."""
Words = Callable[[Seconds | None], str]


def measured(rows: tuple[MeasuredStep, ...]) -> Group:
    """The plan, and below it each timeline beside the simulation of the plan. There must be at least one timeline."""
    plan = rows[0].plan
    pipelines = plan.pipelines if isinstance(plan, PipelinesPlan) else (plan,)
    return Group(
        heading(plan), *(Text(layout(one)) for one in pipelines), *(part for row in rows for part in (Text(), _one(row)))
    )


def _one(row: MeasuredStep) -> Group:
    timeline, unit, words = row.measured, *_unit(row.measured.step_s)
    here = "measured" if timeline.origin == "measured" else "given"
    parts: list[Text | Table] = [Text(f"{row.name}: {_what(timeline)}", style=STYLE)]
    if timeline.scale != 1:
        parts.append(Text(f"Predicted and simulated times are multiplied by {timeline.scale:g}, the time scale of this run."))
    table = grid(f"Step, mean over ranks (in {unit})", "name", "predicted", "simulated", here, "error")
    table.columns[0].header = ""
    for line in (row.step, *row.seconds):
        table.add_row(line.name, words(line.predicted), words(line.simulated), words(line.measured), _error(line))
    parts += [table, Text()]
    stages = grid(
        f"Stages, mean over ranks (in {unit})", "stage", "ranks",
        "compute\nsimulated", f"\n{here}", "\nerror", "\nleast - most",
        "exposed\nsimulated", f"\n{here}", "bubble\nsimulated", f"\n{here}", f"other\n{here}",
    )  # fmt: skip
    groups = grid(f"Communication, mean over ranks (in {unit})", "stage", "group", "simulated", here, "error")
    for stage in row.pipeline_ranks:
        of = {line.name: line for line in stage.seconds}
        compute, exposed, bubble, other = (of[kind] for kind in KINDS)
        cells = [words(compute.simulated), words(compute.measured), _error(compute)]
        cells.append(f"{words(compute.least)} - {words(compute.most)}" if stage.ranks > 1 else "")
        cells += [words(number) for line in (exposed, bubble) for number in (line.simulated, line.measured)]
        stages.add_row(str(stage.pp_rank), str(stage.ranks), *cells, words(other.measured))
        for line in stage.groups:
            groups.add_row(str(stage.pp_rank), line.name, words(line.simulated), words(line.measured), _error(line))
    parts.append(stages)
    return Group(*parts, *((Text(), groups) if groups.rows else ()), *((Text(), _memory(row)) if row.memory else ()))


def _memory(row: MeasuredStep) -> Table:
    table = grid("Memory of a device, the rank that took most (in GiB)", "stage", "", "predicted", "measured", "error")
    for line in row.memory:
        error = "-" if line.error is None else f"{line.error:+.1%}"
        numbers = f"{line.predicted / GIBI:.2f}", f"{line.measured / GIBI:.2f}", error
        table.add_row(str(line.pp_rank), MEMORY[line.name], *numbers)
    return table


def timeline(shown: Timeline) -> Group:
    """Tables of one timeline: its step, and the seconds of each stage by kind."""
    unit, words = _unit(shown.step_s)
    stages = breakdown(shown)
    table = grid(f"Stages, mean over ranks (in {unit})", "stage", "ranks", *KINDS)
    groups = grid(f"Communication, mean over ranks (in {unit})", "stage", "group", "seconds", "least", "most")
    for stage in (*stages, *((total(stages),) if len(stages) > 1 else ())):
        name = str(stage.pp_rank) if stage.pp_rank >= 0 else "all"
        table.add_row(name, str(stage.ranks), *(words(share.mean) for _, share in stage.seconds))
        for group, share in stage.groups:
            groups.add_row(name, group, words(share.mean), words(share.least), words(share.most))
    rate = f"{shown.tokens / shown.step_s:,.0f} tokens/s" + (f" at scale {shown.scale:g}" if shown.scale != 1 else "")
    heads = [Text(f"{shown.name}: {_what(shown)}", style=STYLE), Text(f"{rate}, of plan {shown.plan_digest}"), Text()]
    return Group(*heads, table, *((Text(), groups) if groups.rows else ()))


def _what(timeline: Timeline) -> str:
    """Description such as `measured step of 151 ms with paced compute, the median of 5 (from 149.8 to 153.1 ms)`."""
    steps = timeline.steps_s
    among = f", the median of {len(steps)} (from {time_text(min(steps))} to {time_text(max(steps))})" if len(steps) > 1 else ""
    paced = f" with {timeline.compute} compute" if timeline.compute else ""
    return f"{timeline.origin} step of {time_text(timeline.step_s)}{paced}{among}"


def _unit(step: Seconds) -> tuple[str, Words]:
    """The unit of all times of a step, and the function that formats seconds in it."""
    one, digits, unit = (1.0, 3, "s") if step >= 1 else (MILLI, 2, "ms")

    def words(seconds: Seconds | None) -> str:
        return "-" if seconds is None else f"{round(seconds / one, digits) + 0.0:.{digits}f}"  # never -0.000

    return unit, words


def _error(line: Line) -> str:
    return "-" if line.error is None else f"{line.error:+.1%}"
