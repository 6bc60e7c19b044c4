"""Candidates per second of the evaluator: GPT-175B on two device types, random splits of the layers.

`python -m benchmarks evaluator` prints candidates/s of the recurrence alone, and of the recurrence with candidates built from
layer counts and a new table of costs. Seconds are CPU seconds of this process, which has one thread. For comparison, Calculon
does about 400 evaluations/s (measured on a machine with two cores).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import least
from planner.costs.context import PlanningContext
from planner.request import Request
from planner.space.shape import Shape
from sim.analytic.evaluator import Table
from sim.analytic.recurrence import steps
from sim.analytic.stage_costs import StageCosts
from sim.formats.topology import load, load_model
from sim.workload.workload import Workload

TOPOLOGY = Path(__file__).parents[1] / "topologies" / "hethub-768.yaml"
CASES = (("1f1b", 16, 192, 1), ("1f1b", 8, 64, 1), ("zb-h1", 16, 192, 1), ("interleaved", 16, 192, 2))
"""(schedule, pp, microbatches, vpp)"""


def table(schedule: str, pp: int, microbatches: int, vpp: int) -> Table:
    """A table of costs of a shape with tp 8 and dp 8, with no cost computed yet."""
    topology, dp = load(TOPOLOGY), 8
    workload = Workload(load_model("gpt-175b"), dp * microbatches, 2048, "bf16")
    shape = Shape(8, dp, 1, "full", schedule, vpp, zero_stage=1)
    context = PlanningContext(Request(topology, workload))
    clusters = topology.fleet.clusters
    classes = [
        StageCosts(workload, shape.config(workload, pp), context.cluster_costs.collectives(cluster, shape)[0])
        for cluster in clusters
    ]
    messages = np.array([[context.messages.least(a, b, shape) for b in clusters] for a in clusters])
    return Table(classes, messages)


def splits(count: int, pp: int, vpp: int, layers: int) -> tuple[np.ndarray, np.ndarray]:
    """(node classes of pipeline ranks, layers of stages) of `count` candidates: a random border, nearly equal layers."""
    rng = np.random.default_rng(1)
    classes = (np.arange(pp) >= rng.integers(0, pp + 1, (count, 1))).astype(np.int64)
    shares = rng.dirichlet(np.full(pp * vpp, 30.0), count)
    return classes, 1 + rng.multinomial(layers - pp * vpp, shares)


def measure() -> dict[str, dict[str, float]]:
    """Candidates/s by case and batch: of the recurrence alone, and with candidates built and a new table of costs."""
    return {
        f"{schedule} pp {pp} vpp {vpp} m {microbatches}, {count:,} candidates": _rates((schedule, pp, microbatches, vpp), count)
        for schedule, pp, microbatches, vpp in CASES
        for count in (1000, 10_000)
    }


def _rates(shape: tuple[str, int, int, int], count: int) -> dict[str, float]:
    chosen, repeats = splits(count, shape[1], shape[3], 96), 5
    candidates = table(*shape).candidates(*chosen)
    tables = iter([table(*shape) for _ in range(repeats)])
    alone = least(lambda: steps(candidates), repeats)
    both = least(lambda: steps(next(tables).candidates(*chosen)), repeats)
    return {"recurrence": count / alone, "all": count / both}
