"""Whether a pin gives a faster plan than the search without it: `python -m benchmarks pins [owned] [FLEETS [PINS]]`.

Small fleets of `benchmarks.certificates.fleets` are planned, and planned again with random pins; with `owned`, those of
`benchmarks.owned_fleets`. A pin only makes the space smaller, so a faster plan is a defect of the search. Twenty fleets with
five pins each, unless given, take some minutes, with `owned` half an hour.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from benchmarks import owned_fleets
from benchmarks.certificates.fleets import draw
from planner import strategies
from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from planner.request import Request, Wishes
from planner.space.shapes import searched
from sim.errors import Infeasible
from sim.plan import schedules

SLACK = 0.005
"""Fraction by which a pinned plan may be faster: the search stops at plans that are faster by less (`Budgets.target_gap`)."""


class Pinned(NamedTuple):
    """A random pin: its options, and step of the free plan / step of the pinned plan - 1."""

    seed: int
    pins: str
    faster: float


def pinned(question: Request, rng: random.Random) -> Wishes:
    """The wishes of a request with one or two more pins, of values that the search considers."""
    shape = rng.choice(list(searched(question)))
    values = {
        "tp": shape.tp, "dp": shape.dp, "microbatch_size": shape.microbatch_size, "recompute": shape.recompute,
        "pp": rng.randint(1, 4), "zero_stage": rng.choice([1, 2, 3]),
        "schedule": rng.choice([name for name in schedules.names() if schedules.is_searched(name)]),
    }  # fmt: skip
    free = [key for key in values if getattr(question.wishes, key) is None]
    return replace(question.wishes, **{key: values[key] for key in rng.sample(free, min(len(free), rng.randint(1, 2)))})


def seconds(question: Request) -> float:
    """Step of the default strategy's plan. Raises Infeasible."""
    return step(strategies.get("certified").plan(question, PlanningContext(question)))


def measure(fleets: int, pins: int, drawn: Callable[[int], Request] = draw) -> Iterator[Pinned]:
    """Plan fleets freely and with random pins; pins with which no plan fits are left out. `drawn`: the request of a seed."""
    for seed in range(fleets):
        question, rng = drawn(seed), random.Random(f"pins {seed}")
        try:
            free = seconds(question)
        except Infeasible:
            continue
        for _ in range(pins):
            wishes = pinned(question, rng)
            try:
                yield Pinned(seed, str(wishes), free / seconds(replace(question, wishes=wishes)) - 1)
            except Infeasible:
                continue


def show(options: list[str]) -> None:
    """Print every pin that gives a faster plan, and how many do. `options`: the word `owned`, and the numbers of fleets and of
    pins for each, all if given."""
    numbers = [int(one) for one in options if one != "owned"]
    fleets, pins = (*numbers, *(20, 5)[len(numbers) :])
    found = []
    for one in measure(fleets, pins, owned_fleets.draw if "owned" in options else draw):
        found.append(one)
        if one.faster > 0:
            print(f"fleet {one.seed}: {one.pins} is faster by {one.faster:.2%}", flush=True)
    worse = sum(one.faster > SLACK for one in found)
    print(f"{worse} of {len(found)} pins give a plan that is faster by more than {SLACK:.1%}")
