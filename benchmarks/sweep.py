"""How well the layouts of a sweep are predicted and ranked: `python -m benchmarks sweep`, in some seconds.

nanotron's runs of `holmes_sim/residuals.csv`, in groups of equal model and number of nodes. tau is Kendall's rank correlation
of predicted and measured steps, and regret how much slower the layout that is ranked first is than the best measured one; both
are means over the groups with two layouts or more. Some layouts were run two or three times: such runs are no pair of tau.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean, median

from holmes_sim.residuals import Residual, residuals

SOURCE = "nanotron_2025"
"""Source of the runs."""
ROUNDING = 0.5e-4
"""Largest rounding of measured / predicted in the file."""


def table() -> Iterator[str]:
    """Lines of a Markdown table: one for each set of constants."""
    runs = [run for run in residuals() if run.source == SOURCE]
    yield "| constants | runs | median error | mean error | tau in a group | mean regret | worst regret |"
    yield "| --- " * 7 + "|"
    for column, _ in runs[0].ratios:
        errors = [abs(1 / run.ratio(column) - 1) for run in runs]
        pairs = [[(run.measured_s / run.ratio(column), run.measured_s) for run in group] for group in groups(runs)]
        taus = [found for group in groups(runs) if (found := tau(group, column)) is not None]
        lost = [min(group)[1] / min(measured for _, measured in group) - 1 for group in pairs]
        numbers = f"{median(errors):.1%} | {mean(errors):.1%} | {mean(taus):.2f} | {mean(lost):.1%} | {max(lost):.0%}"
        yield f"| {column} | {len(runs)} | {numbers} |"


def tau(runs: Sequence[Residual], column: str) -> float | None:
    """(concordant - discordant pairs) / both. Pairs with one predicted step, within the rounding of the file, do not count:
    most are two runs of one layout. None without a pair."""
    signs = []
    for index, one in enumerate(runs):
        for other in runs[:index]:
            a, b = one.ratio(column), other.ratio(column)
            first, second = one.measured_s / a, other.measured_s / b
            if abs(first / second - 1) > ROUNDING * (1 / a + 1 / b) and one.measured_s != other.measured_s:
                signs.append(1 if (first > second) == (one.measured_s > other.measured_s) else -1)
    return mean(signs) if signs else None


def groups(runs: list[Residual]) -> list[list[Residual]]:
    """The runs of each choice that has two or more."""
    found = [[run for run in runs if run.choice == choice] for choice in dict.fromkeys(run.choice for run in runs)]
    return [group for group in found if len(group) > 1]


def show() -> None:
    """Print the table."""
    for line in table():
        print(line)
