"""Table of several strategies or targets for one request: a row for each, the fastest first, and why some have no plan."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.intervals import step_range
from holmes_sim.printing.layouts import degrees, layers_by_cluster
from holmes_sim.printing.tables import HEADS, STYLE, grid, slower_text
from holmes_sim.printing.workloads import model_text
from holmes_sim.results import PLURAL, Compared, reason, tokens_per_device
from planner.request import Request
from sim.plan.plan import Plan
from sim.units import Seconds, time_text

HEADERS = (
    "step\n80 % range", "samples/s", "tokens/s\nper device", "of compute-\nonly speed", "slower\nby", "planned\nin",
    "layout",
)  # fmt: skip


def compared(answer: Compared) -> Group:
    """Heading, table, and one line for each strategy or target without a plan. At least one must have a plan."""
    pinned = str(answer.request.wishes)
    parts: list[Text | Table] = [
        heading(answer.request),
        *([Text(f"pinned: {pinned}")] if pinned else []),
        Text(),
        _table(answer),
    ]
    notes = [Text(answer.closeness)] if answer.closeness else []
    if answer.read_by:
        notes += [Text(f"Exports were read by: {', '.join(f'{name} ({text})' for name, text in answer.read_by.items())}.")]
    notes += [Text(f"{grade[0].upper()}{grade[1:]}: {', '.join(names)}.") for grade, names in _grades(answer).items()]
    parts += [Text(), *notes, Text(HEADS)]
    if answer.without:
        parts += [Text(), Text("No plan", style=STYLE), *(Text(f"{row.name}: {reason(row)}") for row in answer.without)]
    return Group(*parts)


def _grades(answer: Compared) -> dict[str, list[str]]:
    """What predictions rest on, if that is a guess -> the strategies whose plans do."""
    found: dict[str, list[str]] = {}
    for name, plan, predicted in answer.ranked:
        if grade := step_range(predicted.step_s, plan).grade:
            found.setdefault(grade, []).append(name)
    return found


def heading(request: Request) -> Text:
    """One line: topology, model, batch, devices."""
    workload, fleet = request.workload, request.topology.fleet
    return Text(
        f"{request.topology.name}: {model_text(workload)}, "
        f"batch {workload.global_batch_size} x {workload.seq_len} tokens {workload.precision}, {fleet.devices} devices",
        style=STYLE,
    )


def _table(answer: Compared) -> Table:
    table = grid(f"{PLURAL[answer.by].capitalize()}, the fastest first", answer.by, *HEADERS)
    seconds = {row.name: time_text(float(f"{row.planning_s:.2g}")) for row in answer.rows}
    best = answer.ranked[0][2].step_s
    for name, plan, prediction in answer.ranked:
        fastest = prediction.step_s == best
        table.add_row(
            name,
            f"{time_text(prediction.step_s)}\n{step_range(prediction.step_s, plan).text.replace(' to ', '-')}",
            f"{prediction.samples_per_s:.4g}",
            f"{tokens_per_device(plan, prediction):,.0f}",
            f"{prediction.upper_bound_fraction:.1%}",
            "fastest" if fastest else _slower(answer, name, prediction.step_s, best),
            seconds[name],
            _layout(plan),
            style=STYLE if fastest else None,
        )
    for row in answer.without:
        table.add_row(row.name, *"-----", seconds[row.name], "no plan, see below")
    return table


def _slower(answer: Compared, name: str, step: Seconds, best: Seconds) -> str:
    """How much slower a row is; of a target, which is a limit to the plan, also the seconds that it costs."""
    text = f"{'~ ' if name in answer.close else ''}{slower_text(step / best)}"
    return f"{text}\n{time_text(float(f'{step - best:.3g}'))}" if answer.by == "target" else text


def _layout(plan: Plan) -> str:
    config = plan.config
    virtual = f" x {config.vpp}" if config.vpp > 1 else ""
    used, owned = config.world_size, plan.fleet.devices
    idle = f" ({used:,} of {owned:,} devices)" if used < owned else ""
    return f"{degrees(plan)}, {config.schedule}{virtual}: {layers_by_cluster(plan)}{idle}"
