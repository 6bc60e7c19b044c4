"""metis: device groups along the types of devices, layers by the capacity of each group, the batch by the speed inside one.

Metis (Um et al., USENIX ATC 2024; SamsungLabs/Metis, search_space and model) lines the devices up by type, in every order of
the types, and cuts the line into the device groups of the stages; a group at a border of types holds both. Then

- a group starts with data parallelism alone and halves it for tensor parallelism until the stages fit: the first that fits is
  taken, for every number of stages and of microbatches;
- the data balancer gives the replicas of a mixed group shares of the batch by their speed, by largest remainder;
- the layer balancer gives group s layers by its capacity c_s = (1 / its time) / sum of all; of a group short of memory the
  capacity is cut by 0.9 x what fits and goes to groups with room, at most three times;
- a plan costs (m - 1) max t_s + sum t_s + messages + longest optimizer + longest gradient sum.

Left out, because a plan has one tp and one dp and its microbatches one size: groups of unequal sizes and degrees that differ
from stage to stage, so that all groups shrink their dp together; sizes need not be powers of two. A replica runs through all
stages, so its share of the batch holds for all of them and is counted in whole microbatches; it follows from its time in the
mixed groups. Even shares are priced beside it, for where most groups are pure. Memory is that of the fullest device, not the
sum over a group. Recomputation, which Metis lacks, is one more degree. Layer seconds, paces and optimizer are our closed forms,
in place of its profiles; loading of batches is not modelled."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.placement.ranks import assemble
from planner.placement.simulation import fastest
from planner.request import Request
from planner.search.shortlist import shortlist
from planner.space.device_slots import Stand, cut, devices, orders, strips, thinned
from planner.space.shapes import Shape, shapes, slots
from sim.errors import Infeasible, PlanError
from sim.plan.plan import Plan

RANKED = 8
PLAYED = 3
ATTEMPTS = 3
MARGIN = 0.9
"""Layers are balanced so often, capacity short of memory is cut by so much more (SamsungLabs/Metis, model/load_balancer.py)."""
MOVES = 3
"""So many layers are moved over a border at the end (same file)."""
ROUNDING = 1e-9
"""Capacity that is lost in rounding, as a share of all."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A plan of Metis' search and its cost in seconds; `microbatches` are those of every replica."""

    seconds: float
    shape: Shape
    stands: tuple[Stand, ...]
    layers: tuple[int, ...]
    microbatches: tuple[int, ...]


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest of the plans that Metis ranks first. Raises Infeasible where none fits."""
    deadline = time.monotonic() + request.time_limit
    costs = MixedStageCosts(context)
    rough = ((least, groups) for groups in _groups(request) for least in _least(costs, groups))
    ranked = shortlist(rough, functools.partial(_first_that_fits, costs), RANKED, deadline)
    best = fastest((functools.partial(_build, request, priced) for priced in ranked), RANKED, PLAYED, deadline)
    if best is None:
        raise Infeasible("metis: no device groups of equal size over all devices divide the batch and fit the memory")
    return best


def batch_shares(speeds: Sequence[float], total: int) -> tuple[int, ...]:
    """The data balancer: shares of `total` in proportion to speed, by largest remainder, of equals the first."""
    whole = sum(speeds)
    exact = [total * speed / whole for speed in speeds]
    shares = [math.floor(share) for share in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: shares[i] - exact[i])
    for i in by_rest[: total - sum(shares)]:
        shares[i] += 1
    return tuple(shares)


def balance_layers(
    capacities: Sequence[float], layers: int, head: float = 0.0, tail: float = 0.0, least: int = 1
) -> tuple[int, ...]:
    """The layer balancer: layers in order, filled into stages by capacity; `least` a stage at least.

    `head` and `tail` are the demands of embedding and logits, in layers: they are the first and the last stage's. A layer goes
    to the stage in which most of it falls. Then up to `MOVES` times the stage with most capacity to spare takes a layer from
    its neighbour with least, if none then has as much to spare. (The released code moves between equals, too, and back.)
    """
    demand = layers + head + tail
    whole = sum(capacities)
    edges = [demand * part / whole for part in itertools.accumulate(capacities)]
    cuts = [math.floor(edge - head + 0.5) for edge in edges[:-1]]
    for i, _ in enumerate(cuts):
        cuts[i] = min(max(cuts[i], (cuts[i - 1] if i else 0) + least), layers - least * (len(cuts) - i))
    given = [b - a for a, b in itertools.pairwise([0, *cuts, layers])]
    wanted = [b - a for a, b in itertools.pairwise([0.0, *edges])]
    wanted[0] -= head
    wanted[-1] -= tail
    spare = [want - have for want, have in zip(wanted, given, strict=True)]
    for _ in range(MOVES):
        taker = max(range(len(given)), key=lambda i: spare[i])
        givers = [i for i in (taker - 1, taker + 1) if 0 <= i < len(given) and given[i] > least]
        giver = min(givers, key=lambda i: spare[i], default=taker)
        after = [left - (i == taker) + (i == giver) for i, left in enumerate(spare)]
        if giver == taker or max(after) >= max(spare):
            break
        given[taker], given[giver], spare = given[taker] + 1, given[giver] - 1, after
    return tuple(given)


def relieve(capacities: Sequence[float], fits: Sequence[float]) -> list[float] | None:
    """Capacities after those short of memory gave up some; `fits` is memory over demand of each. None where none has room.

    What is given up goes to the stages with room by capacity, to none more than its memory holds.
    """
    kept = [c if fit >= 1 else c * fit * MARGIN for c, fit in zip(capacities, fits, strict=True)]
    room = [max(c * (fit - 1), 0.0) for c, fit in zip(capacities, fits, strict=True)]
    lost = sum(capacities) - sum(kept)
    if sum(room) < lost:
        return None
    while lost > ROUNDING * sum(capacities):
        open_ = sum(c for c, left in zip(capacities, room, strict=True) if left > 0)
        for i, c in enumerate(capacities):
            if room[i] > 0:
                more = min(room[i], lost * c / open_)
                kept[i], room[i] = kept[i] + more, room[i] - more
        lost = sum(capacities) - sum(kept)
    return kept


def _groups(request: Request) -> Iterator[tuple[tuple[Shape, tuple[Stand, ...]], ...]]:
    """Device groups of as many stages and microbatches, in all the ways to share them between dp and tp, least tp first."""
    layers, every = request.workload.model.layers, orders(request)
    found: dict[tuple[int, int, str], list[Shape]] = {}
    for shape in shapes(request, across=True):
        pp, rest = divmod(sum(slots(cluster, shape.tp) for cluster in request.clusters()), shape.slots)
        whole = not rest and not any(cluster.node.count % shape.tp for cluster in request.clusters())
        if whole and 0 < pp * shape.vpp <= layers and request.wishes.pp in (None, pp):
            found.setdefault((pp, shape.microbatches(request.workload), shape.recompute), []).append(shape)
    both = [(alike, order) for alike in found.values() for order in every]
    for alike, order in thinned(both, request.topology.fleet.devices):
        line = list(itertools.chain.from_iterable(order))
        yield tuple((shape, cut(line, shape.tp, shape.slots)) for shape in sorted(alike, key=lambda shape: shape.tp))


def _least(costs: MixedStageCosts, groups: tuple[tuple[Shape, tuple[Stand, ...]], ...]) -> Iterator[float]:
    """The least compute of device groups if memory were no limit; nothing where they cannot be priced at all."""
    seconds = [priced.seconds for shape, stands in groups for priced in _prices(costs, shape, stands, limited=False)]
    if seconds:
        yield min(seconds)


def _first_that_fits(costs: MixedStageCosts, groups: tuple[tuple[Shape, tuple[Stand, ...]], ...]) -> list[Priced]:
    """Plans of the least tensor parallelism that fits the memory; empty where none does."""
    found = (list(_prices(costs, shape, stands, limited=True)) for shape, stands in groups)
    return next((prices for prices in found if prices), [])


def _prices(costs: MixedStageCosts, shape: Shape, stands: tuple[Stand, ...], limited: bool) -> Iterator[Priced]:
    """A plan with even shares of the batch, and one with those of the data balancer where some group is mixed."""
    for microbatches in _shares(costs, shape, stands):
        with suppress(PlanError):
            priced = _price(costs, shape, stands, microbatches, limited)
            if priced is not None:
                yield priced


def _shares(costs: MixedStageCosts, shape: Shape, stands: tuple[Stand, ...]) -> Iterator[tuple[int, ...]]:
    """Microbatches of every replica: even, and by their speed in mixed groups where a plan may have them uneven."""
    m = shape.microbatches(costs.workload)
    yield (m,) * shape.dp
    mixed = [i for i, stand in enumerate(stands) if _mixed(stand)]
    if mixed and max(shape.cp, shape.ep, shape.vpp) == 1 and shape.zero_stage < 2:
        seconds = _seconds(costs, shape, stands)
        strip_speeds = [1 / sum(strip[i][1] for i in mixed) for _, strip in seconds]
        speeds = [speed for (count, _), speed in zip(seconds, strip_speeds, strict=True) for _ in range(count)]
        shares = batch_shares(speeds, m * shape.dp)
        if min(shares) > 0 and len(set(shares)) > 1:
            yield shares


def _price(
    costs: MixedStageCosts, shape: Shape, stands: tuple[Stand, ...], microbatches: tuple[int, ...], limited: bool
) -> Priced | None:
    """The plan of given shares and its cost; None where its layers do not fit the memory.

    Without that limit its compute alone: what the cost cannot be below as long as the layers stay."""
    pp, seconds = len(stands), _seconds(costs, shape, stands)
    most: list[int] = []
    for count, _ in seconds:
        before = sum(ahead for ahead, _ in seconds[: len(most)])
        most.append(max(microbatches[before // shape.cp : math.ceil((before + count) / shape.cp)]))
    strips_of = [strip for _, strip in seconds]
    times = [max(m * strip[i][1] for m, strip in zip(most, strips_of, strict=True)) for i in range(pp)]
    base = strips_of[0]
    head, tail = (max(base[i][0], 0.0) / base[i][1] for i in (0, -1))
    layers = _layers(costs, shape, stands, [1 / t for t in times], (head, tail), max(microbatches) if limited else 0)
    if layers is None:
        return None
    total = 0.0
    for m, strip in zip(most, strips_of, strict=True):
        stage = [s + k * c for k, (s, c) in zip(layers, strip, strict=True)]
        total = max(total, (m - 1) * max(stage) + sum(stage) / shape.vpp)
    if not limited:
        return Priced(total, shape, stands, layers, microbatches)
    found = [costs.cost(shape, stand, k, _ends(i, pp)) for i, (stand, k) in enumerate(zip(stands, layers, strict=True))]
    total += sum(costs.messages(shape, stands))
    total += max(cost.optimizer for cost in found) + max(cost.reduce + cost.gather for cost in found)
    return Priced(total, shape, stands, layers, microbatches)


def _layers(
    costs: MixedStageCosts,
    shape: Shape,
    stands: tuple[Stand, ...],
    capacities: list[float],
    ends: tuple[float, float],
    microbatches: int,
) -> tuple[int, ...] | None:
    """Layers by capacity, cut where memory is short; None where it stays so. With 0 microbatches memory is no limit."""
    wanted: list[float] | None = capacities
    for _ in range(ATTEMPTS):
        if wanted is None:
            return None
        layers = balance_layers(wanted, costs.workload.model.layers, *ends, least=shape.vpp)
        if not microbatches:
            return layers
        pairs = enumerate(zip(stands, layers, strict=True))
        demands = [costs.bytes_at(shape, stand, k, i, len(stands), microbatches) for i, (stand, k) in pairs]
        fits = [limit / demand for demand, limit in demands]
        if min(fits) >= 1:
            return layers
        wanted = relieve(wanted, fits)
    return None


def _seconds(
    costs: MixedStageCosts, shape: Shape, stands: tuple[Stand, ...]
) -> tuple[tuple[int, tuple[tuple[float, float], ...]], ...]:
    """Of replicas on the same types: how many, and (s, c) of every stage, which takes them s + k c seconds for k layers."""
    pp, found = len(stands), []
    for strip in strips(stands):
        types = [run.cluster.node.device if _mixed(stand) else None for run, stand in zip(strip, stands, strict=True)]
        times = (costs.line_seconds(shape, stands[i], _ends(i, pp), types[i]) for i in range(pp))
        found.append((strip[0].count, tuple(times)))
    return tuple(found)


def _mixed(stand: Stand) -> bool:
    return len({run.cluster.node.device.name for run in stand}) > 1


def _ends(place: int, pp: int) -> tuple[bool, bool]:
    return place == 0, place == pp - 1


def _build(request: Request, priced: Priced) -> Plan:
    shape, even = priced.shape, len(set(priced.microbatches)) == 1
    where = devices(priced.stands, shape.tp)
    return assemble(request, shape, priced.layers, where, "metis", () if even else priced.microbatches)
