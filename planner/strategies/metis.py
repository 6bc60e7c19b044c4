"""metis: device groups along the device types, layers by the capacity of each group, the batch by the speed inside a group.

Metis (Um et al., USENIX ATC 2024; SamsungLabs/Metis, search_space and model) sorts the devices by type, for every order of the
types, and cuts the sequence of their slots into the device groups of the stages; a group at a border of types holds both. Then

- a group starts with data parallelism alone and halves dp in favour of tp until the stages fit; the first dp that fits is
taken,
  for every number of stages and of microbatches;
- the data balancer gives the replicas of a mixed group shares of the batch by their speed, by largest remainder;
- the layer balancer gives group s layers by its capacity c_s = (1 / its time) / sum of all; the capacity of a group short of
  memory is cut to 0.9 x what fits, and the rest goes to groups with free memory, at most three times;
- a plan costs (m - 1) max t_s + sum t_s + messages + longest optimizer + longest gradient all-reduce.

Not modelled, because a plan has one tp and one dp and its microbatches one size: groups of unequal sizes and degrees that
differ from stage to stage; so all groups halve dp together, and sizes need not be powers of two. A replica runs through
all stages, so its share of the batch is the same in all of them, in whole microbatches; it follows from its time in the mixed
groups. Even shares are evaluated, too, for plans in which most groups are pure. Memory is that of the fullest device, not the
sum over a group. Recomputation, which Metis lacks, is one more degree. Closed forms of this
simulator replace its profiles of layers, communication and optimizer; loading of batches is not modelled."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts, mixed_costs
from planner.placement.ranks import assemble
from planner.placement.simulation import fastest
from planner.request import Request
from planner.search.shortlist import shortlist
from planner.space import lengths
from planner.space.device_slots import StageSlots, cut, devices, orders, replica_groups, thinned
from planner.space.shape import Shape
from planner.space.shapes import shapes, slots
from sim.errors import Infeasible, NoRoute, NotDefined
from sim.plan.plan import Plan

RANKED = 8
SIMULATED = 3
"""Maximum numbers of plans that are built and ranked, and of those that are simulated (guesses)."""
ATTEMPTS = 3
MARGIN = 0.9
"""Maximum number of times that layers are balanced, and the factor by which capacity short of memory is cut further
(SamsungLabs/Metis, model/load_balancer.py)."""
MOVES = 3
"""Maximum number of layers that are moved over a border at the end (same file)."""
ROUNDING = 1e-9
"""Share of the whole capacity that may be lost in rounding."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A plan of Metis' search and its cost in seconds; `microbatches` are those of every replica."""

    seconds: float
    shape: Shape
    stage_slots: tuple[StageSlots, ...]
    layers: tuple[int, ...]
    microbatches: tuple[int, ...]


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest of the plans that Metis ranks first. Raises Infeasible where none fits."""
    limit = context.limit
    costs = mixed_costs(context)
    rough = ((least, groups) for groups in _groups(request) for least in _least(costs, groups))
    ranked = shortlist(rough, functools.partial(_first_that_fits, costs), RANKED, limit)
    best = fastest((functools.partial(_build, request, priced) for priced in ranked), RANKED, SIMULATED, limit)
    if best is None:
        raise Infeasible("metis: no device groups of equal size over all devices divide the batch and fit the memory")
    return best


def batch_shares(speeds: Sequence[float], total: int) -> tuple[int, ...]:
    """The data balancer: shares of `total` in proportion to speed, by largest remainder; the first of equals wins."""
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
    """The layer balancer: layers of every stage, filled in order by capacity; at least `least` per stage.

    `head` and `tail` are the demands of embedding (first stage) and logits (last stage), in layers. A layer goes to the stage
    that covers most of it. Then up to `MOVES` times the stage with most spare capacity takes a layer from its neighbour with
    least, if this lowers the maximum spare capacity. (The released code moves between equals, too, and back.)
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
    """Capacities after stages short of memory give up a part; `fits` is memory / demand of each. None if others lack it.

    The part goes to the stages with free memory in proportion to their capacity, up to what their memory holds.
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


def _groups(request: Request) -> Iterator[tuple[tuple[Shape, tuple[StageSlots, ...]], ...]]:
    """Families of device groups with equal numbers of stages and microbatches, over all (dp, tp), least tp first."""
    layers, every = request.workload.model.layers, orders(request)
    found: dict[tuple[int, int, str], list[Shape]] = {}
    for shape in shapes(request, across=True):
        pp, rest = divmod(sum(slots(cluster, shape.tp) for cluster in request.clusters()), shape.slots)
        whole = not rest and not any(cluster.node.count % shape.tp for cluster in request.clusters())
        if whole and 0 < pp * shape.vpp <= layers and lengths.allows(request, shape, pp):
            found.setdefault((pp, shape.microbatches(request.workload), shape.recompute), []).append(shape)
    both = [(alike, order) for alike in found.values() for order in every]
    for alike, order in thinned(both, request.topology.fleet.devices):
        slots_in_order = list(itertools.chain.from_iterable(order))
        yield tuple((shape, cut(slots_in_order, shape.tp, shape.slots)) for shape in sorted(alike, key=lambda shape: shape.tp))


def _least(costs: MixedStageCosts, groups: tuple[tuple[Shape, tuple[StageSlots, ...]], ...]) -> Iterator[float]:
    """The least compute seconds of device groups without the memory limit; nothing where they cannot be evaluated."""
    seconds = [priced.seconds for shape, stage_slots in groups for priced in _prices(costs, shape, stage_slots, limited=False)]
    if seconds:
        yield min(seconds)


def _first_that_fits(costs: MixedStageCosts, groups: tuple[tuple[Shape, tuple[StageSlots, ...]], ...]) -> list[Priced]:
    """Plans with the least tensor parallelism that fits the memory; empty where none fits."""
    found = (list(_prices(costs, shape, stage_slots, limited=True)) for shape, stage_slots in groups)
    return next((prices for prices in found if prices), [])


def _prices(costs: MixedStageCosts, shape: Shape, stage_slots: tuple[StageSlots, ...], limited: bool) -> Iterator[Priced]:
    """A plan with even shares of the batch and, where some group is mixed, one with the shares of the data balancer."""
    for microbatches in _shares(costs, shape, stage_slots):
        with suppress(NoRoute, NotDefined):
            priced = _price(costs, shape, stage_slots, microbatches, limited)
            if priced is not None:
                yield priced


def _shares(costs: MixedStageCosts, shape: Shape, stage_slots: tuple[StageSlots, ...]) -> Iterator[tuple[int, ...]]:
    """Microbatches of every replica: even ones, then by speed in mixed groups where a plan supports uneven ones."""
    m = shape.microbatches(costs.workload)
    yield (m,) * shape.dp
    mixed = [i for i, stage in enumerate(stage_slots) if _mixed(stage)]
    if mixed and max(shape.cp, shape.ep, shape.vpp) == 1 and shape.zero_stage < 2:
        seconds = _seconds(costs, shape, stage_slots)
        strip_speeds = [1 / sum(strip[i][1] for i in mixed) for _, strip in seconds]
        speeds = [speed for (count, _), speed in zip(seconds, strip_speeds, strict=True) for _ in range(count)]
        shares = batch_shares(speeds, m * shape.dp)
        if min(shares) > 0 and len(set(shares)) > 1:
            yield shares


def _price(
    costs: MixedStageCosts, shape: Shape, stage_slots: tuple[StageSlots, ...], microbatches: tuple[int, ...], limited: bool
) -> Priced | None:
    """The plan with given shares and its cost; None where its layers do not fit the memory.

    Without `limited` the cost is the compute alone, a lower bound as long as the layers stay the same."""
    pp, seconds = len(stage_slots), _seconds(costs, shape, stage_slots)
    most: list[int] = []
    for count, _ in seconds:
        before = sum(ahead for ahead, _ in seconds[: len(most)])
        most.append(max(microbatches[before // shape.cp : math.ceil((before + count) / shape.cp)]))
    strips_of = [strip for _, strip in seconds]
    times = [max(m * strip[i][1] for m, strip in zip(most, strips_of, strict=True)) for i in range(pp)]
    base = strips_of[0]
    head, tail = (max(base[i][0], 0.0) / base[i][1] for i in (0, -1))
    layers = _layers(costs, shape, stage_slots, [1 / t for t in times], (head, tail), max(microbatches) if limited else 0)
    if layers is None:
        return None
    total = 0.0
    for m, strip in zip(most, strips_of, strict=True):
        taken = [s + k * c for k, (s, c) in zip(layers, strip, strict=True)]
        total = max(total, (m - 1) * max(taken) + sum(taken) / shape.vpp)
    if not limited:
        return Priced(total, shape, stage_slots, layers, microbatches)
    found = [costs.cost(shape, stage, k, _ends(i, pp)) for i, (stage, k) in enumerate(zip(stage_slots, layers, strict=True))]
    total += sum(costs.messages(shape, stage_slots))
    total += max(cost.optimizer for cost in found) + max(cost.reduce + cost.gather for cost in found)
    return Priced(total, shape, stage_slots, layers, microbatches)


def _layers(
    costs: MixedStageCosts,
    shape: Shape,
    stage_slots: tuple[StageSlots, ...],
    capacities: list[float],
    ends: tuple[float, float],
    microbatches: int,
) -> tuple[int, ...] | None:
    """Layers by capacity, reduced where memory is short; None where it stays short. With 0 microbatches memory is unlimited."""
    wanted: list[float] | None = capacities
    for _ in range(ATTEMPTS):
        if wanted is None:
            return None
        layers = balance_layers(wanted, costs.workload.model.layers, *ends, least=shape.vpp)
        if not microbatches:
            return layers
        pairs = enumerate(zip(stage_slots, layers, strict=True))
        demands = [costs.bytes_at(shape, stage, k, i, len(stage_slots), microbatches) for i, (stage, k) in pairs]
        fits = [limit / demand for demand, limit in demands]
        if min(fits) >= 1:
            return layers
        wanted = relieve(wanted, fits)
    return None


def _seconds(
    costs: MixedStageCosts, shape: Shape, stage_slots: tuple[StageSlots, ...]
) -> tuple[tuple[int, tuple[tuple[float, float], ...]], ...]:
    """For replicas on the same device types: their number and (s, c) of every stage, which takes s + k c for k layers."""
    pp, found = len(stage_slots), []
    for strip in replica_groups(stage_slots):
        types = [run.cluster.node.device if _mixed(stage) else None for run, stage in zip(strip, stage_slots, strict=True)]
        times = (costs.linear_seconds(shape, stage_slots[i], _ends(i, pp), types[i]) for i in range(pp))
        found.append((strip[0].count, tuple(times)))
    return tuple(found)


def _mixed(stage: StageSlots) -> bool:
    return len({run.cluster.node.device.name for run in stage}) > 1


def _ends(stage: int, pp: int) -> tuple[bool, bool]:
    return stage == 0, stage == pp - 1


def _build(request: Request, priced: Priced) -> Plan:
    shape, even = priced.shape, len(set(priced.microbatches)) == 1
    where = devices(priced.stage_slots, shape.tp)
    return assemble(request, shape, priced.layers, where, "metis", () if even else priced.microbatches)
