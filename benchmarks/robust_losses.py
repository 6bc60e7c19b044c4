"""Losses of a small GPT with each aggregation of islands, all right or one of them wrong: the evidence for their price.

`python -m benchmarks robust_losses [STEPS [SEEDS]]` trains for STEPS inner steps (500) with SEEDS seeds (3), as
`benchmarks.sync_losses` does, on five islands with 20 sequences of a step. A wrong island, drawn by the seed, sends minus ten
times its values in each exchange; the loss is that of the right ones. Needs torch."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from benchmarks.sync_losses import Row, train
from sim.sync import Sync

ISLANDS, BATCH = 5, 20
AGGREGATIONS = ("mean", "median", "multi-krum", "krum", "flag")
STRATEGIES = (("every-step", 1), ("diloco", 10))
"""Strategy, inner steps."""


def measure(steps: int = 500, seeds: int = 3) -> Iterator[tuple[Row, Row]]:
    """Rows of all aggregations with both strategies, each when it is known: without and with a wrong island."""
    cases = [Sync(name, inner, aggregation=how) for name, inner in STRATEGIES for how in AGGREGATIONS]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            [[pool.submit(train, sync, ISLANDS, steps, seed, BATCH, wrong) for seed in range(seeds)] for wrong in (False, True)]
            for sync in cases
        ]
        for sync, both in zip(cases, jobs, strict=True):
            rows = []
            for some in both:
                losses, least = zip(*(job.result() for job in some), strict=True)
                rows.append(
                    Row(f"{sync.strategy} {sync.inner_steps}, {sync.aggregation}", ISLANDS, losses, statistics.mean(least))
                )
            yield rows[0], rows[1]


def show(arguments: list[str]) -> None:
    """Print the losses as a Markdown table, each row when it is known. Arguments: STEPS and SEEDS."""
    print("| strategy and aggregation | loss | spread | with a wrong island | spread |")
    print("| --- | --- | --- | --- | --- |")
    for right, wrong in measure(*map(int, arguments)):
        cells = [f"{statistics.mean(row.losses):.3f} | {max(row.losses) - min(row.losses):.3f}" for row in (right, wrong)]
        print(f"| {right.name} | {' | '.join(cells)} |", flush=True)
    print(f"\nThe predictor that knows the table has a loss of {right.least:.3f}.")
