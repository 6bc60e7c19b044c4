"""What it is worth that each stage recomputes as few layers as fit: `python -m benchmarks recompute [FLEETS]`.

The fleets of `benchmarks.unlike`, also for a model of 70 billion parameters. Each is planned freely, and with recomputation of
no layer and of all layers pinned, of which the faster plan counts. Twenty-four fleets, unless given, take six minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import unlike
from benchmarks.unlike import Compared
from planner.placement.simulation import step
from planner.request import Request, Wishes
from sim.plan.plan import Plan

MODELS = (*unlike.MODELS, "llama-2-70b")
PINS = Wishes(recompute="none"), Wishes(recompute="full")
FLEETS = 24


def compared(request: Request) -> Compared | None:
    """The plan of a request, and the faster plan that recomputes no layer or all; None where neither fits."""
    return unlike.compared(request, PINS)


def table(found: Iterator[Compared | None]) -> Iterator[str]:
    """A Markdown table of the fleets on whose plan some layers are recomputed, and how many fleets there are."""
    yield "| fleet | all layers or none | by stage | saved |"
    yield "| --- | --- | --- | --- |"
    every = []
    for one in filter(None, found):
        every.append(one)
        if one.free.config.recompute_layers:
            alike, free = (f"{step(plan):.4g} s ({_words(plan)})" for plan in (one.alike, one.free))
            yield f"| {one.fleet} | {alike} | {free} | {one.saved:.1%} |"
    many = sum(bool(one.free.config.recompute_layers) for one in every)
    slower = sum(one.saved < 0 for one in every)
    yield f"{many} of {len(every)} plans recompute some layers; {slower} are slower than with all layers or none."


def _words(plan: Plan) -> str:
    config = plan.config
    counts = ", ".join(map(str, config.recompute_layers))
    return f"tp {config.tp_text}, pp {config.pp}, {config.recompute}{f' of {counts}' if counts else ''}"


def show(numbers: list[str]) -> None:
    """Print the table, each row when it is known."""
    fleets = int(numbers[0]) if numbers else FLEETS
    for line in table(compared(unlike.drawn(seed, MODELS)) for seed in range(fleets)):
        print(line, flush=True)
