"""Samples/s of every strategy on every shipped topology: `python -m benchmarks strategies` prints a Markdown table.

Every cell is the simulated plan of a strategy for the workload of the topology. The best of a row is bold; a dash means that
the strategy has no plan. All strategies use the same costs, memory model and engine, so they differ only in the plans that they
choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holmes_sim import commands
from planner import api
from planner.api import Row
from planner.placement.simulation import step
from planner.request import Request


def measure(topologies: tuple[str, ...], names: tuple[str, ...]) -> Iterator[tuple[str, tuple[Row, ...]]]:
    """(topology, a result for each strategy), each when it is known."""
    for name in topologies:
        topology = commands.load(name)
        rows = api.compare(Request(topology, commands.workload_of(topology)), names)
        if len(rows) < len(names) or rows[-1].interrupted:  # an incomplete row compares nothing
            raise KeyboardInterrupt
        yield name, rows


def table(names: tuple[str, ...], measured: Iterable[tuple[str, tuple[Row, ...]]]) -> Iterator[str]:
    """The lines of a Markdown table with a column for each strategy, each when it is known."""
    yield f"| samples/s | {' | '.join(names)} |"
    yield f"| --- |{' --- |' * len(names)}"
    for topology, rows in measured:
        yield f"| {topology} | {' | '.join(_cells(rows))} |"


def _cells(rows: tuple[Row, ...]) -> list[str]:
    """Rates with four digits; the best, and those with the same four digits, are bold."""
    rates = [0.0 if row.plan is None else row.plan.workload.global_batch_size / step(row.plan) for row in rows]
    texts = [f"{rate:.4g}" if rate else "-" for rate in rates]
    best = f"{max(rates):.4g}"
    return [f"**{text}**" if text == best else text for text in texts]
