"""Tables of a validation: errors of the step time by source, errors of memory, and which cases were left out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mean

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim import error_tables, intervals, memory_validation, validation
from holmes_sim.cases import Case
from holmes_sim.printing.tables import STYLE, grid


def _memory(sizes: tuple[tuple[Case, float, float], ...]) -> Table:
    """Table of the errors of the peak memory by source."""
    table = grid("Peak memory", "name", "cases", "mean error", "bias", "worst")
    table.columns[0].header = "source"
    for source in dict.fromkeys(case.source for case, _, _ in sizes):
        errors = [error for case, _, error in sizes if case.source == source]
        worst = max(errors, key=abs)
        table.add_row(source, str(len(errors)), f"{mean(map(abs, errors)):.1%}", f"{mean(errors):+.1%}", f"{worst:+.1%}")
    return table


def _memory_parts(cases: tuple[Case, ...]) -> list[Text | Table]:
    """Errors of the peak memory and outcomes, as far as they were measured."""
    sizes, called = memory_validation.memory_errors(cases), memory_validation.outcomes(cases)
    parts: list[Text | Table] = [_memory(sizes)] if sizes else []
    lines = _outcomes(called)
    return [*parts, *([Text()] if parts and lines else []), *lines]


def _outcomes(called: memory_validation.Outcomes) -> list[Text | Table]:
    """How many layouts that ran are called feasible, and how many that failed are called infeasible."""
    lines = [("that ran", called.ran_feasible, called.ran, "feasible")]
    lines += [("that ran out of memory", called.failed_infeasible, called.failed, "infeasible")]
    return [Text(f"Layouts {which}: {some} of {n} called {what} ({some / n:.1%}).") for which, some, n, what in lines if n]


def _axis(rows: tuple[validation.Row, ...], axis: str) -> Table:
    """Table of the errors along one axis."""
    table = grid(f"Errors by {axis}", "name", "runs", "mean error", "median", "bias", "in range")
    table.columns[0].header = axis
    for label, one in error_tables.table(rows, axis).items():
        table.add_row(label, str(one.n), *_errors(one))
    return table


def _errors(one: validation.Summary) -> tuple[str, ...]:
    """Mean and median absolute error, bias, and the share of runs inside their range."""
    inside = "-" if one.coverage is None else f"{one.coverage:.0%}"
    return (f"{one.mape:.1%}", f"{one.median_ape:.1%}", f"{one.bias:+.1%}", inside) if one.n else ("-",) * 4


def validated(rows: tuple[validation.Row, ...], cases: tuple[Case, ...], axes: Sequence[str] = ()) -> Group:
    """Table of the errors by source and over all cases, then errors along `axes`, errors of memory, compute sources, and cases
    left out.

    `rows` are those of the cases with a measured step."""
    memory, left_out = _memory_parts(cases), _left_out(cases)
    if not rows:
        return Group(*memory, *left_out)
    sources = validation.by_source(rows)
    table = grid(
        "Simulated against measured",
        "name",
        "cases",
        "left\nout",
        "mean\nerror",
        "median",
        "bias",
        "in\nrange",
        "tau",
        "regret",
    )
    table.columns[0].header = "source"
    for name, one in [*sources.items(), ("all", validation.summary(rows, one_source=False))]:
        tau = "-" if one.kendall_tau is None else f"{one.kendall_tau:.2f}"
        lost = "-" if one.regret is None else f"{one.regret:.1%}"
        table.add_row(name, str(one.n), str(one.left_out) if one.left_out else "", *_errors(one), tau, lost)
    average, fit = "None of the cases can be simulated.", validation.by_fit(rows)
    if any(one.n for one in sources.values()):
        average = f"Mean over sources: {validation.macro(sources):.1%}, bias {validation.macro_bias(sources):+.1%}. "
        average += f"The 80 % range of the prediction holds {validation.macro_coverage(sources):.0%} of a source's runs."
    apart = [
        f"{one.n} cases to which the constants {verb} fitted: {one.mape:.1%}, bias {one.bias:+.1%}."
        for one, verb in ((fit["seen"], "were"), (fit["unseen"], "were not"))
        if one.n and fit["seen"].n
    ]
    note = "" if fit["seen"].n else " No stack was fitted to any of these cases."
    if any(row.constants == "default" for row in rows):
        note += " The default is six constants, fitted once to all runs of validation/."
    apart.append(_held_out_coverage())
    parts: list[Text | Table] = [table, Text(), Text(average + note), *map(Text, apart)]
    for axis in axes:
        parts += [Text(), _axis(rows, axis)]
    parts += [Text(), *memory] if memory else []
    compute = Counter(words for row in rows if (words := validation.rests_on(row)))
    if compute:
        parts += [Text(), Text("Compute", style=STYLE), *(Text(f"{many:4} {words}") for words, many in compute.items())]
    return Group(*parts, *left_out)


def _held_out_coverage() -> str:
    """How many published runs are inside the ranges of other sources, in words."""
    default, fitted = (intervals.held_out_coverage(fitted) for fitted in (False, True))
    shares = f"{default:.0%} of a source's runs with the default stack, {fitted:.0%} with fitted stacks"
    return f"Published runs inside the ranges that the other sources give: {shares}."


def _left_out(cases: tuple[Case, ...]) -> list[Text]:
    """How many cases of each source have no plan, and why."""
    reasons = Counter(f"{case.source}: {case.reason}" for case in cases if case.reason)
    lines = [Text(f"{many:4} {reason}") for reason, many in reasons.items()]
    return [Text(), Text("Left out", style=STYLE), *lines] if lines else []
