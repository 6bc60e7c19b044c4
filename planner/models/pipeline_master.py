"""The master programme of unlike pipelines: which columns together compute most samples within a deadline.

x[k] is the number of copies of column k, an integer. Copies take no more nodes of a cluster than it has, and have no more
replicas than are allowed, because more replicas reduce gradients longer; the objective is the number of samples within the
deadline. Columns that are not planned yet are optimistic: their samples are an upper estimate, so
that a solution without them says that none of them is worth a search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.models.solver import NothingFound, Programme, Variable, count, total
from planner.time_limit import TimeLimit

NODES = 1_000
"""Nodes of the branch-and-bound tree (a guess); most programmes need none."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Nodes of each cluster that a column takes, its replicas, and the samples that it computes within the deadline."""

    nodes: tuple[int, ...]
    replicas: int
    samples: float


def most_samples(choices: Sequence[Choice], nodes: Sequence[int], replicas: int, limit: TimeLimit) -> tuple[int, ...]:
    """The number of copies of each choice that together compute most samples, two or more with at most `nodes` of each cluster
    and at most so many replicas: one pipeline alone would be a plan of alike replicas.

    All zero where there are none, or the solver's budget ended first."""
    programme, copies = _programme(choices, nodes, replicas)
    programme.require("several", total((one, 1) for one in copies) >= 2)
    try:
        solution = programme.solve(NODES, limit)
    except NothingFound:
        solution = None
    return tuple(count(one) for one in copies) if solution else (0,) * len(choices)


def samples_bound(choices: Sequence[Choice], nodes: Sequence[int], limit: TimeLimit) -> float:
    """An upper bound on the samples of all copies of choices that `nodes` of each cluster hold, with any number of replicas."""
    programme, _ = _programme(choices, nodes, None)
    try:
        solution = programme.solve(NODES, limit)
    except NothingFound:
        return math.inf
    return -solution.bound if solution else 0.0


def quick_bound(choices: Sequence[Choice], nodes: Sequence[int]) -> float:
    """An upper bound on the samples of `samples_bound` without a solver, by a price for each node.

    With the samples of the best choice on one cluster alone as the price of its nodes, times the least number with which no
    choice computes more than its nodes cost, copies compute no more than all nodes cost."""
    prices = [
        max((one.samples / need for one in choices if (need := one.nodes[cluster]) and need == sum(one.nodes)), default=0.0)
        for cluster in range(len(nodes))
    ]
    costs = [(one.samples, sum(need * price for need, price in zip(one.nodes, prices, strict=True))) for one in choices]
    if any(samples > 0 and not cost for samples, cost in costs):
        return math.inf
    dearer = max((samples / cost for samples, cost in costs if cost), default=1.0)
    return dearer * sum(have * price for have, price in zip(nodes, prices, strict=True))


def _programme(choices: Sequence[Choice], nodes: Sequence[int], replicas: int | None) -> tuple[Programme, list[Variable]]:
    """The programme and the copies of each choice; with a limit of replicas, if any."""
    programme = Programme("pipelines")
    copies = [
        programme.integer(f"x{number}", 0, min(have // need for have, need in zip(nodes, one.nodes, strict=True) if need))
        for number, one in enumerate(choices)
    ]
    for cluster, have in enumerate(nodes):
        taken = total((copies[number], one.nodes[cluster]) for number, one in enumerate(choices) if one.nodes[cluster])
        programme.require(f"nodes{cluster}", taken <= have)
    if replicas is not None:
        every = total((copies[number], one.replicas) for number, one in enumerate(choices))
        programme.require("replicas", every <= replicas)
    programme.minimise(total((copies[number], -one.samples) for number, one in enumerate(choices)))
    return programme, copies
