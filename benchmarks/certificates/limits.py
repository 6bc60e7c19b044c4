"""Random limits (`planner.limits`) of drawn requests, most of which leave some plans."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from planner.limits import HOUR, Limits
from planner.request import Request
from sim.plan.allowed import Allowed

PRICES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Rents of a device in USD per hour."""
MOST = 3
"""Maximum number of limits of a request."""


def limited(request: Request, seed: int) -> Request:
    """The request with one to `MOST` limits, and with a price of every device."""
    rng = random.Random(f"limits {seed}")
    request = _priced(request, rng)
    for draw in rng.sample(KINDS, rng.randint(1, MOST)):
        request = replace(request, limits=draw(request, rng))
    return request


def _priced(request: Request, rng: random.Random) -> Request:
    fleet = request.topology.fleet
    clusters = tuple(
        replace(one, node=replace(one.node, device=replace(one.node.device, price=rng.choice(PRICES) / HOUR)))
        for one in fleet.clusters
    )
    return replace(request, topology=replace(request.topology, fleet=replace(fleet, clusters=clusters)))


def _numbers(name: str, most: int) -> Callable[[Request, random.Random], Limits]:
    """A limit of a dimension from below, from above, or from both sides."""

    def draw(request: Request, rng: random.Random) -> Limits:
        low, high = sorted((rng.randint(1, most), rng.randint(1, most)))
        allowed = rng.choice([Allowed(most=high), Allowed(most=high), Allowed(least=low), Allowed(least=low, most=high)])
        return _with(request.limits, name, allowed)

    return draw


def _words(name: str, words: tuple[str | int, ...]) -> Callable[[Request, random.Random], Limits]:
    """A list of allowed values of a dimension."""

    def draw(request: Request, rng: random.Random) -> Limits:
        chosen = rng.sample(words, rng.randint(1, len(words) - 1))
        return _with(request.limits, name, Allowed(tuple(one for one in words if one in chosen)))

    return draw


def _with(limits: Limits, name: str, allowed: Allowed) -> Limits:
    return replace(limits, dimensions=(*limits.dimensions, (name, allowed)))


def _devices(request: Request, rng: random.Random) -> Limits:
    return replace(request.limits, devices=rng.randint(1, request.topology.fleet.devices))


def _rent(request: Request, rng: random.Random) -> Limits:
    nodes = [
        one.node.count * (one.node.device.price or 0.0) for one in request.topology.fleet.clusters for _ in range(one.nodes)
    ]
    return replace(request.limits, rent=sum(rng.sample(nodes, rng.randint(1, len(nodes)))))


def _ends(request: Request, rng: random.Random) -> Limits:
    names = ["", *(cluster.name for cluster in request.clusters())]
    return replace(request.limits, first=rng.choice(names), last=rng.choice(names))


def _stages(request: Request, rng: random.Random) -> Limits:
    names, number = [cluster.name for cluster in request.clusters()], rng.choice((-3, -2, 1, 2))
    return replace(request.limits, stages=((number, rng.choice(names)),))


def _on_cluster(request: Request, rng: random.Random) -> Limits:
    kinds = [("tp", Allowed(most=1)), ("tp", Allowed(least=2)), ("recompute", Allowed(("full",))), ("dp", Allowed(most=2))]
    name, allowed = rng.choice(kinds)
    cluster = rng.choice([cluster.name for cluster in request.topology.fleet.clusters])
    return replace(request.limits, on_clusters=((cluster, ((name, allowed),)),))


def _nodes(request: Request, rng: random.Random) -> Limits:
    cluster = rng.choice(request.topology.fleet.clusters)
    number = rng.randint(1, cluster.nodes)
    allowed = rng.choice([Allowed(least=number), Allowed(most=number), Allowed((number,))])
    return replace(request.limits, nodes=((cluster.name, allowed),))


KINDS: tuple[Callable[[Request, random.Random], Limits], ...] = (
    _numbers("tp", 4), _numbers("pp", 6), _numbers("pp", 6), _numbers("dp", 8), _numbers("microbatch_size", 8),
    _numbers("vpp", 4), _words("zero_stage", (1, 2, 3)), _words("schedule", ("1f1b", "interleaved", "zb-h1", "zb-h2")),
    _words("recompute", ("none", "full")), _devices, _devices, _rent, _rent, _ends, _ends, _stages, _on_cluster, _nodes,
)  # fmt: skip
"""Kinds of limits; some are drawn more often."""
