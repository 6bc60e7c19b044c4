"""Table of several plans: a row for each, that with most tokens a second first."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from holmes_sim.plans_beside import PlansBeside, SimulatedPlan
from holmes_sim.printing.layouts import degrees, layers_by_cluster
from holmes_sim.printing.tables import grid
from sim.disaggregation.plan import DisaggregatedPlan
from sim.plan.plan import Plan
from sim.units import GIBI, time_text

HEADERS = ("step\n80 % range", "tokens/s", "MFU", "slower\nby", "devices", "peak\nmemory", "kind")


def plans_compared(answer: PlansBeside) -> Group:
    """The table, and what should be known of the comparison."""
    table = grid("Plans, simulated, the fastest first", "plan", *HEADERS)
    for row in answer.rows:
        numbers, slower = row.prediction, answer.slower(row)
        table.add_row(
            row.name,
            f"{time_text(numbers.step_s)}\n{row.range.text.replace(' to ', '-')}" if row.range else time_text(numbers.step_s),
            f"{numbers.tokens_per_s:,.0f}",
            f"{numbers.mfu:.1%}",
            f"{'~ ' if answer.is_close(row) else ''}{slower:.1%}" if slower else "fastest",
            f"{row.devices:,}",
            f"{row.memory / GIBI:.1f} GiB",
            row.kind.name,
        )
    notes = [f"{row.name}: {'; '.join(_layouts(row))}" for row in answer.rows] + [""]
    notes += [f"{row.name}: {row.range.grade}." for row in answer.rows if row.range and row.range.grade]
    if any(map(answer.is_close, answer.rows)):
        notes.append(
            f"~ cannot be told apart: predicted differences below {answer.least_ratio - 1:.0%} are ordered wrongly in more "
            "than one of five pairs of measured layouts."
        )
    if answer.unlike:
        notes.append(f"Warning: the plans have unlike {' and '.join(answer.unlike)}; slower by: seconds of a token.")
    return Group(table, Text(), *(Text(note) for note in notes))


def _layouts(row: SimulatedPlan) -> tuple[str, ...]:
    """Degrees and layers, one text for each pipeline."""
    if isinstance(row.plan, DisaggregatedPlan):
        return (str(row.plan.stage),)
    alike = isinstance(row.plan, Plan)
    return tuple(
        ("" if alike else f"{one.workload.global_batch_size} samples, ")
        + f"{degrees(one)}, {one.config.schedule}: {layers_by_cluster(one)}"
        for one in row.pipelines
    )
