"""Ranges of the step time under several definitions of comparable runs: `python -m benchmarks ranges`, in some seconds.

Each source is left out in turn: its runs are compared with the range that the runs of the other sources give. The table shows
means over sources: the share of runs inside the range, the width of the range (log of largest / smallest), and the interval
score (Gneiting and Raftery, JASA 2007, equation 43): the width, plus 10 times the distance of a run to the range, so that
neither a range that is too wide nor one that holds too few runs is good.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean

from holmes_sim.intervals import SHARE, quantiles
from holmes_sim.residuals import DEFAULT, Residual, residuals

Features = Callable[[Residual], tuple[object, ...]]

DEFINITIONS: dict[str, tuple[Features, float]] = {
    "all runs": (lambda run: (), 0.0),
    "one node or several": (lambda run: (run.nodes > 1,), 0.0),
    "1, 2 to 15, 16 or more nodes": (lambda run: (min(1, run.nodes - 1) + (run.nodes > 15),), 0.0),
    "same device": (lambda run: (run.device,), 0.0),
    "tp above 1 or not": (lambda run: (run.tp > 1,), 0.0),
    "pp above 1 or not": (lambda run: (run.pp > 1,), 0.0),
    "tp, pp and nodes above 1 or not": (lambda run: (run.tp > 1, run.pp > 1, run.nodes > 1), 0.0),
    "weight 0.3 for each that differs": (lambda run: (run.device, run.tp > 1, run.pp > 1, run.nodes > 1), 0.3),
}
"""Definition -> (features of a run, weight of another run for each feature in which it differs)."""
FEWEST = 0.05
"""Share of the total weight below which the comparable runs are too few and all runs are taken instead."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Means over sources of a definition."""

    coverage: float
    width: float
    score: float


def measure(fitted: bool, features: Features, weight: float) -> Measured:
    """Leave out each source, for the default stack or for fitted stacks."""
    runs = [(run, column, ratio) for run in residuals() for column, ratio in run.ratios if (column != DEFAULT) is fitted]
    found = []
    for source in dict.fromkeys(run.source for run, _, _ in runs):
        others = [(features(run), ratio, run.source) for run, _, ratio in runs if run.source != source]
        ranges: dict[tuple[object, ...], tuple[float, float]] = {}
        own = []
        for run, _, ratio in runs:
            if run.source == source:
                key = features(run)
                if key not in ranges:
                    ranges[key] = _range(key, others, weight)
                own.append(_scores(*ranges[key], ratio))
        found.append([mean(column) for column in zip(*own, strict=True)])
    return Measured(*(mean(column) for column in zip(*found, strict=True)))


def _range(key: tuple[object, ...], others: list[tuple[tuple[object, ...], float, str]], weight: float) -> tuple[float, float]:
    """The range that other runs give for a run with the features `key`."""
    shares = Counter(source for _, _, source in others)
    weights = [weight ** sum(a != b for a, b in zip(key, other, strict=True)) / shares[source] for other, _, source in others]
    if sum(weights) < FEWEST * len(shares):
        weights = [1 / shares[source] for _, _, source in others]
    chosen = [(ratio, one) for (_, ratio, _), one in zip(others, weights, strict=True) if one]
    return quantiles([ratio for ratio, _ in chosen], [one for _, one in chosen])


def _scores(low: float, high: float, ratio: float) -> tuple[float, float, float]:
    """(whether the run is inside, width, interval score), in logarithms."""
    width = math.log(high / low)
    outside = max(math.log(low / ratio), math.log(ratio / high), 0.0)
    return float(low <= ratio <= high), width, width + 2 / (1 - SHARE) * outside


def table() -> Iterator[str]:
    """Lines of a Markdown table."""
    yield "| comparable runs | stack | inside | width | score |"
    yield "| --- | --- | --- | --- | --- |"
    for name, (features, weight) in DEFINITIONS.items():
        for fitted in (False, True):
            one = measure(fitted, features, weight)
            stack = "fitted" if fitted else "default"
            yield f"| {name} | {stack} | {one.coverage:.0%} | {one.width:.2f} | {one.score:.2f} |"


def show() -> None:
    """Print the table."""
    for line in table():
        print(line, flush=True)
