"""How well the layouts of a sweep are predicted and ranked: `python -m benchmarks sweep`, in some seconds.

nanotron's runs of `holmes_sim/residuals.csv`, in groups of equal model and number of nodes. tau is Kendall's rank correlation
of predicted and measured steps, and regret how much slower the layout that is ranked first is than the best measured one; both
are means over the groups with two layouts or more.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean, median

from holmes_sim.residuals import Residual, residuals
from holmes_sim.validation import kendall_tau

SOURCE = "nanotron_2025"
"""Source of the runs."""


def table() -> Iterator[str]:
    """Lines of a Markdown table: one for each set of constants."""
    runs = [run for run in residuals() if run.source == SOURCE]
    yield "| constants | runs | median error | mean error | tau in a group | mean regret | worst regret |"
    yield "| --- " * 7 + "|"
    for column, _ in runs[0].ratios:
        errors = [abs(1 / run.ratio(column) - 1) for run in runs]
        pairs = [[(run.measured_s / run.ratio(column), run.measured_s) for run in group] for group in groups(runs)]
        taus = [tau for group in pairs if (tau := kendall_tau(group)) is not None]
        lost = [min(group)[1] / min(measured for _, measured in group) - 1 for group in pairs]
        numbers = f"{median(errors):.1%} | {mean(errors):.1%} | {mean(taus):.2f} | {mean(lost):.1%} | {max(lost):.0%}"
        yield f"| {column} | {len(runs)} | {numbers} |"


def groups(runs: list[Residual]) -> list[list[Residual]]:
    """The runs of each choice that has two or more."""
    found = [[run for run in runs if run.choice == choice] for choice in dict.fromkeys(run.choice for run in runs)]
    return [group for group in found if len(group) > 1]


def show() -> None:
    """Print the table."""
    for line in table():
        print(line)
