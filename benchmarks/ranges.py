"""Ranges of the step time under several definitions of comparable runs: `python -m benchmarks ranges`, in some seconds.

Each source is left out in turn: its runs are compared with the range that the runs of the other sources give. The table shows
means over sources: the share of runs inside the range, the width of the range (log of largest / smallest), and the interval
score (Gneiting and Raftery, JASA 2007, equation 43): the width, plus 10 times the distance of a run to the range, so that
neither a range that is too wide nor one that holds too few runs is good.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import mean

from holmes_sim.guesses import is_guessed
from holmes_sim.intervals import SHARE, quantiles
from holmes_sim.residuals import DEFAULT, Residual, residuals
from sim.formats import catalog

Features = Callable[[Residual], tuple[object, ...]]


def _rests_on_guess(run: Residual) -> bool:
    """Whether the rates of a device of a run are guessed. Cases that describe a device themselves say where they are from."""
    known = catalog.names("devices")
    return any(is_guessed(catalog.device_facts(name)) for name in run.device.split(" + ") if name in known)


DEFINITIONS: dict[str, tuple[Features, float]] = {
    "all runs": (lambda run: (), 0.0),
    "one node or several": (lambda run: (run.nodes > 1,), 0.0),
    "1, 2 to 15, 16 or more nodes": (lambda run: (min(1, run.nodes - 1) + (run.nodes > 15),), 0.0),
    "same device": (lambda run: (run.device,), 0.0),
    "rates measured or guessed": (lambda run: (_rests_on_guess(run),), 0.0),
    "tp above 1 or not": (lambda run: (run.tp > 1,), 0.0),
    "pp above 1 or not": (lambda run: (run.pp > 1,), 0.0),
    "tp, pp and nodes above 1 or not": (lambda run: (run.tp > 1, run.pp > 1, run.nodes > 1), 0.0),
    "weight 0.3 for each that differs": (lambda run: (run.device, run.tp > 1, run.pp > 1, run.nodes > 1), 0.3),
}
"""Definition -> (features of a run, weight of another run for each feature in which it differs)."""
FEWEST = 0.05
"""Share of the total weight below which the comparable runs are too few and all runs are taken instead."""


USED = "one node or several"
"""The definition that `holmes_sim.intervals` uses."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Means over the runs of a source, or over sources."""

    coverage: float
    width: float
    score: float


def measure(fitted: bool, features: Features, weight: float) -> Measured:
    """Mean over sources, each left out in turn, for the default stack or for fitted stacks."""
    return _mean((one.coverage, one.width, one.score) for one in by_source(fitted, features, weight).values())


def by_source(fitted: bool, features: Features, weight: float) -> dict[str, Measured]:
    """Each source, compared with the ranges that the other sources give."""
    runs = [
        (run.source, features(run), ratio)
        for run in residuals()
        for column, ratio in run.ratios
        if (column != DEFAULT) is fitted
    ]
    found = {}
    for source in dict.fromkeys(name for name, _, _ in runs):
        others = [run for run in runs if run[0] != source]
        own = [(key, ratio) for name, key, ratio in runs if name == source]
        ranges = {key: _range(key, others, weight) for key in {key for key, _ in own}}
        found[source] = _mean(_scores(*ranges[key], ratio) for key, ratio in own)
    return found


def _mean(rows: Iterable[tuple[float, float, float]]) -> Measured:
    return Measured(*(mean(column) for column in zip(*rows, strict=True)))


def _range(key: tuple[object, ...], others: list[tuple[str, tuple[object, ...], float]], weight: float) -> tuple[float, float]:
    """The range that other runs give for a run with the features `key`."""
    shares = Counter(source for source, _, _ in others)
    differing = [sum(a != b for a, b in zip(key, other, strict=True)) for _, other, _ in others]
    weights = [weight**count / shares[source] for count, (source, _, _) in zip(differing, others, strict=True)]
    if sum(weights) < FEWEST * len(shares):
        weights = [1 / shares[source] for source, _, _ in others]
    chosen = [(ratio, one) for (_, _, ratio), one in zip(others, weights, strict=True) if one]
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


def sources() -> Iterator[str]:
    """Lines of a Markdown table: runs of each source inside the ranges that the other sources give, by the used definition."""
    yield "| source | default | fitted |"
    yield "| --- | --- | --- |"
    default, fitted = (by_source(fitted, *DEFINITIONS[USED]) for fitted in (False, True))
    for source, one in default.items():
        yield f"| {source} | {one.coverage:.0%} | " + (f"{fitted[source].coverage:.0%} |" if source in fitted else "- |")


def show() -> None:
    """Print the tables."""
    for line in (*table(), "", *sources()):
        print(line, flush=True)
