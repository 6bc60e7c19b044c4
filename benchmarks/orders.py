"""How often the simulator orders two layouts as measured: `python -m benchmarks orders`, in some seconds.

Pairs of held-out runs that differ in their layout only, by predicted difference, and the difference from which four of five
pairs are right (`holmes_sim.resolution`). Its spread is that of samples of the choices, drawn with replacement.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from holmes_sim.residuals import DEFAULT, residuals
from holmes_sim.resolution import FITTED, Pair, least_ratio, pairs

EDGES = (1.0, 1.02, 1.04, 1.08, 1.16, 1.3, float("inf"))
"""Predicted ratios between which pairs are counted together."""
SAMPLES = 200
"""Number of samples of the choices."""


def by_choice(several_nodes: bool, column: str) -> list[list[Pair]]:
    """The pairs of each choice that has some."""
    runs = [run for run in residuals() if (run.nodes > 1) is several_nodes]
    choices = (list(pairs([run for run in runs if run.choice == choice], column)) for choice in {run.choice for run in runs})
    return [found for found in choices if found]


def spread(choices: list[list[Pair]]) -> tuple[float, float]:
    """The 10 % and 90 % quantiles of the resolution of samples of the choices."""
    drawn = np.random.default_rng(0).integers(len(choices), size=(SAMPLES, len(choices)))
    found = [least_ratio([pair for index in sample for pair in choices[index]]) for sample in drawn]
    low, high = np.quantile(found, (0.1, 0.9))
    return float(low), float(high)


def table() -> Iterator[str]:
    """Lines of a Markdown table."""
    yield "| nodes | stack | pairs | " + " | ".join(f"from {low - 1:.0%}" for low in EDGES[:-1]) + " | resolution | spread |"
    yield "| --- " * (len(EDGES) + 4) + "|"
    for several_nodes in (False, True):
        for column in (DEFAULT, FITTED):
            choices = by_choice(several_nodes, column)
            found = [pair for choice in choices for pair in choice]
            here = [[right for ratio, right in found if low <= ratio < high] for low, high in pairwise(EDGES)]
            shares = " | ".join(f"{sum(right) / len(right):.0%}" for right in here)
            low, high = spread(choices)
            where, stack = "several" if several_nodes else "one", "default" if column == DEFAULT else "fitted"
            numbers = f"{least_ratio(found) - 1:.1%} | {low - 1:.0%} to {high - 1:.0%}"
            yield f"| {where} | {stack} | {len(found):,} | {shares} | {numbers} |"


def show() -> None:
    """Print the table."""
    for line in table():
        print(line, flush=True)
