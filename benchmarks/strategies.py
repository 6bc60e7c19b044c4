"""Samples/s of every strategy on every shipped topology: `python -m benchmarks strategies` prints a Markdown table.

Every cell is a plan of that strategy for the topology's own workload, played by the engine; the best of a row is bold, a dash
is a topology for which the strategy has no plan. All strategies stand on the same costs, memory and engine, so what differs is
what they choose, not how it is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holmes_sim import commands
from planner import search, strategies
from planner.question import Question
from planner.search import Row
from planner.verify import step


def measure(
    topologies: tuple[str, ...] = (), names: tuple[str, ...] = (), time_limit: float = 50.0
) -> Iterator[tuple[str, tuple[Row, ...]]]:
    """(topology, a row for each strategy) as they come; all topologies and all strategies unless some are named."""
    for name in topologies or commands.shipped_topologies():
        topology = commands.load(name)
        question = Question(topology, commands.workload_of(topology), time_limit=time_limit)
        asked = names or strategies.names()
        rows = search.compare(question, asked)
        if len(rows) < len(asked) or rows[-1].interrupted:  # a part of a row would compare nothing
            raise KeyboardInterrupt
        yield name, rows


def table(measured: Iterable[tuple[str, tuple[Row, ...]]]) -> Iterator[str]:
    """The lines of a Markdown table, each as soon as it is known."""
    columns: tuple[str, ...] = ()
    for topology, rows in measured:
        if not columns:
            columns = tuple(row.name for row in rows)
            yield f"| samples/s | {' | '.join(columns)} |"
            yield f"| --- |{' --- |' * len(columns)}"
        yield f"| {topology} | {' | '.join(_cells(rows))} |"


def _cells(rows: tuple[Row, ...]) -> list[str]:
    """Rates with four digits, the best bold; those that cannot be told from it here are bold as well."""
    rates = [0.0 if row.plan is None else row.plan.workload.global_batch_size / step(row.plan) for row in rows]
    texts = [f"{rate:.4g}" if rate else "-" for rate in rates]
    best = f"{max(rates):.4g}"
    return [f"**{text}**" if text == best else text for text in texts]
