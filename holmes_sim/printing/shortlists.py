"""Tables of plans to measure, and of the runs that a stack of one's own was fitted to."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from holmes_sim.calibration import Fit
from holmes_sim.printing.layouts import degrees
from holmes_sim.printing.stacks import fitted_constants
from holmes_sim.printing.tables import grid
from holmes_sim.proposals import Proposals
from holmes_sim.runs import Run
from sim.units import Seconds, time_text


def rows(found: Proposals) -> list[tuple[str, str, str, str, str]]:
    """(number, layout, expected step, range of measured steps, why it is on the list) of each plan to measure."""
    result = []
    for number, one in enumerate(found.plans, 1):
        low, high = (time_text(float(f"{seconds:.3g}")) for seconds in one.range_s)
        layout = f"{degrees(one.plan)}, {one.plan.config.schedule}"
        result.append((str(number), layout, _seconds(one.expected_s), f"{low} to {high}", one.why))
    return result


def _seconds(seconds: Seconds) -> str:
    return time_text(float(f"{seconds:.4g}"))


def proposed(found: Proposals) -> Group:
    """Table of the plans to measure, and what the measured ones say."""
    table = grid("Plans to measure", "plan", "layout", "expected", "80 % of runs", "why")
    for row in rows(found):
        table.add_row(*row)
    lines = [f"Chosen among {found.candidates} layouts that {found.target} can express."]
    if found.left_out:
        lines.append(f"{found.target} cannot express the plan of the search, {found.left_out}.")
        lines.append("Pin what it names, or choose another --to TARGET.")
    if found.measured:
        what = f"{found.best_name}, measured" if found.best_name else f"{degrees(found.best)}, not measured, expected"
        lines.append(f"{found.measured} of them are measured. Least expected step: {what} {_seconds(found.best_s)}.")
    return Group(table, Text(), *map(Text, lines))


def runs(found: Sequence[Run], fit: Fit, fitted_s: Sequence[Seconds]) -> Group:
    """Table of runs: measured step, that of the fitted stack, the file; and the constants of the fit with its errors.

    `fitted_s` are the predicted seconds of the measured runs, in their order."""
    table = grid("Runs", "plan", "layout", "measured", "fitted", "error", "name")
    table.columns[-1].header = "from"
    predicted = iter(fitted_s)
    for run in found:
        if run.step_s is None:
            words = "failed for want of memory" if run.failed else run.source or "not measured"
            table.add_row(run.name, degrees(run.plan), "-", "-", "-", words)
            continue
        seconds = next(predicted)
        table.add_row(
            run.name, degrees(run.plan), _seconds(run.step_s), _seconds(seconds), f"{seconds / run.step_s - 1:+.1%}", run.source
        )
    honest = f", and {fit.honest_error:.1%} on runs that a fit did not see" if fit.held_out else ""
    fastest = min((run for run in found if run.step_s is not None), key=lambda run: run.step_s or 0.0)
    lines = [
        f"Fastest measured plan: {fastest.name}, {_seconds(fastest.step_s or 0.0)}.",
        f"Fitted: {fitted_constants(fit)}.",
        f"Mean error of the step time: {fit.default_error:.1%} before the fit, {fit.error:.1%} after it{honest}.",
    ]
    return Group(table, Text(), *map(Text, lines))
