"""Whether a pin gives a faster plan than the search without it: `python -m benchmarks pins [owned|unlike] [FLEETS [PINS]]`.

Small fleets of `benchmarks.certificates.fleets` are planned, and planned again with random pins; with `owned`, those of
`benchmarks.owned_fleets`, and with `unlike` its fleets with a model whose layers differ. A pin only makes the space smaller, so
a faster plan is a defect of the search, and one below the bound of the plan without pins a defect of the bound. Twenty fleets
with five pins each, unless given, take some minutes, with a word half an hour and more. Plans whose search the time limit ended
are left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from benchmarks import owned_fleets
from benchmarks.certificates.fleets import draw
from planner import api, strategies
from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from planner.request import Request, Wishes
from planner.search.mixed import is_mixed
from planner.space.sequences_and_experts import context_degrees
from planner.space.shape import Shape
from planner.space.shapes import searched, searched_schedules, variants
from planner.space.stand_in import stand_ins
from planner.space.unlike_tp import has_searched_degrees
from sim.errors import Infeasible, NotDefined
from sim.plan.parallel_config import BLOCK
from sim.plan.plan import Plan
from sim.units import Seconds

SLACK = 0.005
"""Fraction by which a pinned plan may be faster: the search stops at plans that are faster by less (`Budgets.target_gap`)."""
ROUNDING = 1e-9
"""Fraction by which a step may be below a bound of its own value."""

PINNED = ("tp", "dp", "cp", "ep", "vpp", "microbatch_size", "schedule", "zero_stage", "recompute")
"""Dimensions of shapes that are pinned, beside pp."""
DRAWN: dict[str, Callable[[int], Request]] = {"": draw, "owned": owned_fleets.draw, "unlike": owned_fleets.draw_unlike}
"""Word on the command line -> what draws the request of a seed."""


class Pinned(NamedTuple):
    """A random pin: its options, step of the free plan / step of the pinned plan - 1, and bound of the free plan's certificate
    on plans of this kind / step of the pinned plan - 1."""

    seed: int
    pins: str
    faster: float
    bound: float


def pinned(question: Request, near: Plan | None, rng: random.Random) -> Wishes:
    """The wishes of a request with one or two more pins: each of the value of a plan, or of a random shape."""
    shape = rng.choice(list(_variants(question)))
    values = {key: getattr(shape, key) for key in PINNED} | {"pp": rng.randint(1, 4)}
    if near is not None:
        values |= {key: getattr(near.config, key) for key in values if rng.random() < 0.5}
    free = [key for key in values if getattr(question.wishes, key) is None and values[key] != BLOCK]
    return replace(question.wishes, **{key: values[key] for key in rng.sample(free, min(len(free), rng.randint(1, 2)))})


def _parts(question: Request) -> tuple[Request, ...]:
    """The request, or those of the models of equal layers that stand for its model, where its layers differ."""
    return (question,) if question.workload.model.is_uniform else stand_ins(question)


def _variants(question: Request) -> Iterator[Shape]:
    """The searched shapes of a request under each schedule."""
    for part in _parts(question):
        with suppress(Infeasible):  # a stand-in may have no shape
            yield from (variant for shape in searched(part) for variant in variants(part, shape))


def is_searched(question: Request, wishes: Wishes) -> bool:
    """Whether the free search has plans with the pinned schedule and vpp: two pins may make a pair that it has not, such as
    interleaved with one stage on each rank."""
    pairs = searched_schedules(_parts(question)[0])
    return any(wishes.schedule in (None, name) and wishes.vpp in (None, vpp) for name, vpp in pairs)


def planned(question: Request) -> Plan | None:
    """The default strategy's plan; None where the time limit ended the search. Raises Infeasible."""
    chosen = strategies.get("certified").plan if question.workload.model.is_uniform else _of_unlike_layers
    plan = chosen(question, PlanningContext(question))
    assert plan.certificate is not None
    return None if plan.certificate.time_limit_reached else plan


def _of_unlike_layers(question: Request, context: PlanningContext) -> Plan:
    """The plan of a model whose layers differ."""
    return api.plan(question, context=context)


def bound(question: Request, free: Plan, other: Plan) -> Seconds:
    """The bound that the certificate of the free plan of a request states for plans of another plan's kind; 0 if none."""
    stated = free.certificate
    assert stated is not None
    if is_mixed(other):
        return stated.mixed_lower_bound_s or 0.0 if other.config.cp in context_degrees(question) else 0.0
    return stated.whole_lower_bound_s or stated.lower_bound_s if has_searched_degrees(question, other) else 0.0


def measure(fleets: int, pins: int, drawn: Callable[[int], Request] = draw) -> Iterator[Pinned]:
    """Plan fleets freely and with random pins; pins with which no plan fits are left out. `drawn`: the request of a seed."""
    for seed in range(fleets):
        yield from compared(seed, drawn(seed), pins)


def compared(seed: int, question: Request, pins: int) -> Iterator[Pinned]:
    """The plans with random pins of one fleet beside its free plan."""
    rng = random.Random(f"pins {seed}")
    try:
        free = planned(question)
    except Infeasible:
        return
    for _ in range(pins if free is not None else 0):
        wishes = pinned(question, free, rng)
        if not is_searched(question, wishes):
            continue
        try:
            other = planned(replace(question, wishes=wishes))
        except (Infeasible, NotDefined):  # two pins may exclude each other, such as a schedule and virtual stages
            continue
        if other is not None:
            yield Pinned(seed, str(wishes), step(free) / step(other) - 1, bound(question, free, other) / step(other) - 1)


def show(options: list[str]) -> None:
    """Print every pin that gives a faster plan, and how many do. `options`: a word of `DRAWN`, if any, and the numbers of
    fleets and of pins for each, all if given."""
    word, numbers = ("", options) if not options or options[0] not in DRAWN else (options[0], options[1:])
    unknown = [one for one in numbers if not one.isdigit()]
    if unknown or len(numbers) > 2:
        usage = f"python -m benchmarks pins [{'|'.join(filter(None, DRAWN))}] [FLEETS [PINS]]"
        raise SystemExit(f"unknown: {', '.join(unknown or numbers)}; usage: {usage}")
    fleets, pins = (*map(int, numbers), *(20, 5)[len(numbers) :])
    found = []
    for one in measure(fleets, pins, DRAWN[word]):
        found.append(one)
        if one.faster > 0:
            print(f"fleet {one.seed}: {one.pins} is faster by {one.faster:.2%}", flush=True)
        if one.bound > ROUNDING:
            print(f"fleet {one.seed}: {one.pins} is {one.bound:.2%} below the bound of the plan without it", flush=True)
    worse = sum(one.faster > SLACK for one in found)
    print(f"{worse} of {len(found)} pins give a plan that is faster by more than {SLACK:.1%}")
