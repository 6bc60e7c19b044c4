"""Ranks that must behave alike, played once and counted many times.

Colour refinement over ranks, their groups, the messages between pipeline neighbours, and links: two ranks share a colour
while no difference in device, pipeline place, number of microbatches, group, route or contention tells them apart. The
partition is equitable, so alike ranks do the same things at the same times, and a fair network gives alike flows the same
rates: playing one rank of each class, with its flows' weights summed over the class on one link of each link class, is exact
and not an approximation. `unfolded` puts every rank in a class of its own, for comparison.

A carrier is what travels together: a collective of a group, or one rank's messages to a neighbour. It has a route for each
way that it may go (`sim.network.routes`), and takes one for each payload; the legs of a route have one rate each.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sim import collectives
from sim.engine.faults import NOTHING, Drawn
from sim.engine.symmetry import Copies, copies
from sim.network.alpha_beta import AlphaBeta, alpha_beta_cost, group_costs
from sim.network.gradient_routes import GradientRoutes, Shown, gradient_operations
from sim.network.paths import Capacities, LinkName
from sim.network.rings import Sites
from sim.network.routes import Leg, Route, message_route
from sim.plan.plan import Group, Plan, embedding_groups, gradient_groups
from sim.units import Bytes, BytesPerSecond, Seconds

Key: TypeAlias = tuple[str | int, ...]
"""A carrier: (kind of group or "embedding", first rank, operation) or ("message", source rank, target rank)."""


@dataclass(frozen=True, slots=True)
class FoldedLeg:
    """A leg with links by number and weights counted over the class."""

    use: tuple[tuple[int, float], ...]
    share: float
    latency: float


@dataclass(frozen=True, slots=True)
class FoldedRoute:
    """A way that a carrier may go: its legs, and its pace on an idle network."""

    legs: tuple[FoldedLeg, ...]
    overhead: float
    pace: AlphaBeta


@dataclass(frozen=True, slots=True)
class Carrier:
    """A class of collectives or messages: the ways they may go, and the classes of the ranks that take part."""

    routes: tuple[FoldedRoute, ...]
    interference: float
    members: tuple[int, ...]

    def route(self, nbytes: Bytes) -> FoldedRoute:
        """The way that takes least time for a payload on an idle network, as the closed forms have it."""
        return min(self.routes, key=lambda route: route.pace.seconds(nbytes))


@dataclass(frozen=True, slots=True)
class Carried:
    """A carrier before folding: its ways, each with its pace, the ranks that take part, and how often it is there.

    A gradient collective is there once; of its ranks those that are shown take part here."""

    routes: tuple[Route, ...]
    paces: tuple[AlphaBeta, ...]
    ranks: tuple[int, ...]
    times: int = 1

    @property
    def legs(self) -> tuple[Leg, ...]:
        """Legs of all ways."""
        return tuple(leg for route in self.routes for leg in route.legs)


@dataclass(frozen=True, slots=True)
class Folding:
    """`classes[rank]` is the class of a rank, `representatives[c]` one rank of it; carriers by class as `of` numbers them.

    `closed`: when a class of links is down, (class, from, until)."""

    classes: tuple[int, ...]
    representatives: tuple[int, ...]
    capacities: tuple[BytesPerSecond, ...]
    carriers: tuple[Carrier, ...]
    of: dict[Key, int]
    closed: tuple[tuple[int, Seconds, Seconds], ...] = ()

    @property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """Ranks of every class, its representative first."""
        found: list[list[int]] = [[rank] for rank in self.representatives]
        for rank, name in enumerate(self.classes):
            if rank != found[name][0]:
                found[name].append(rank)
        return tuple(tuple(group) for group in found)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Ranks of every class."""
        count = Counter(self.classes)
        return tuple(count[c] for c in range(len(self.representatives)))


def carriers_of(plan: Plan, sites: Sites | None = None, found: Copies | None = None) -> dict[Key, Carried]:
    """Collectives and messages that the programs of a plan can ask for, with their ways and the ranks that take part.

    All of them, or those of shown ranks, as trunks and the links of shown ranks see them."""
    config, capacities = plan.config, Capacities(plan.fleet)
    carriers: dict[Key, Carried] = {}

    def times(group: Group) -> int:
        return int(found.times[group.ranks[0]]) if found else 1

    listed = tuple(group for group in plan.groups if times(group))
    tensor = ("all_gather", "reduce_scatter") if config.sequence_parallel else ("all_gather", "all_reduce")
    operations = {"tp": tensor, "cp": ("send_recv",), "ep": ("all_to_all",)}
    for groups in _side_by_side(plan, tuple(group for group in listed if group.kind in operations)):
        for operation in operations[groups[0].kind]:
            carriers |= _collectives(plan, groups, operation, capacities, times)
    for group in listed:
        if group.kind == "pp":
            carriers |= _messages(plan, group, capacities, times(group))
    if plan.workload.model.tied_embeddings and config.pp > 1:
        tied = embedding_groups(listed)
        carriers |= _collectives(plan, tied, "all_reduce", capacities, times)
    if sites is not None and found is not None:
        return carriers | _gradients(plan, sites, found, capacities)
    for groups in _side_by_side(plan, gradient_groups(plan)):
        for operation in gradient_operations(config):
            carriers |= _collectives(plan, groups, operation, capacities, times)
    return carriers


def _gradients(plan: Plan, sites: Sites, found: Copies, capacities: Capacities) -> dict[Key, Carried]:
    """Gradient collectives, as trunks and the links of shown ranks see them."""
    listed = gradient_groups(plan)
    lengths: dict[int, list[int]] = {}
    for number, group in enumerate(listed):
        lengths.setdefault(len(group.ranks), []).append(number)
    rounds: dict[int, int] = {}
    for numbers in lengths.values():
        for ring, members in sites.rings(np.array([listed[number].ranks for number in numbers])):
            for number in (numbers[member] for member in members.tolist()):
                rounds[number] = ring.num_rounds(listed[number].collective, "all_gather")
    sides: dict[Key, list[Group]] = {}
    for number, group in enumerate(listed):
        place = plan.config.place(group.ranks[0])[2]
        sides.setdefault((group.kind, place, group.collective, rounds[number]), []).append(group)
    shown = Shown(plan, sites, found.shown)
    carriers: dict[Key, Carried] = {}
    for side in sides.values():
        for operation in gradient_operations(plan.config):
            seen = GradientRoutes(plan, sites, shown, side, operation)
            ways = tuple(seen.under(protocol) for protocol in seen.protocols())
            paces = tuple(alpha_beta_cost(routes, capacities) for routes in ways)
            for index, group in enumerate(side):
                ranks = tuple(rank for rank in group.ranks if found.times[rank])
                carriers[group.kind, min(group.ranks), operation] = Carried(tuple(way[index] for way in ways), paces, ranks)
    return carriers


def _side_by_side(plan: Plan, listed: tuple[Group, ...]) -> list[tuple[Group, ...]]:
    """Groups whose collectives run at once and choose one way together; tensor-parallel ones are alone.

    Together are those of a place that reduce gradients, and those of kind cp or ep over one block of ranks
    (`sim.network.collective_costs`).
    """
    sides: dict[Key, list[Group]] = {}
    width = {"cp": plan.config.cp, "ep": plan.config.ep}
    for group in listed:
        _, index, place = plan.config.place(min(group.ranks))
        if group.kind == "tp":
            sides["tp", min(group.ranks)] = [group]
        else:
            operation = {"cp": "send_recv", "ep": "all_to_all"}.get(group.kind, "all_gather")
            rounds = len(collectives.rounds(group.collective, operation, plan.hosts(group.ranks)))
            block = index // width.get(group.kind, plan.config.dp_cp)
            sides.setdefault((group.kind, place, block, group.collective, rounds), []).append(group)
    return [tuple(groups) for groups in sides.values()]


def _collectives(
    plan: Plan, groups: tuple[Group, ...], operation: str, capacities: Capacities, times: Callable[[Group], int]
) -> dict[Key, Carried]:
    many = tuple(times(group) for group in groups)
    ways = group_costs(plan, groups, operation, capacities, many)
    paces = tuple(way.cost for way in ways)
    return {
        (group.kind, min(group.ranks), operation): Carried(
            tuple(w.routes[index] for w in ways), paces, group.ranks, many[index]
        )
        for index, group in enumerate(groups)
    }


def _messages(plan: Plan, group: Group, capacities: Capacities, times: int) -> dict[Key, Carried]:
    found: dict[Key, Carried] = {}
    ranks = sorted(group.ranks, key=lambda rank: plan.config.place(rank)[2])
    pairs = list(itertools.pairwise(ranks))
    if plan.config.vpp > 1:
        pairs.append((ranks[-1], ranks[0]))
    for pair in [*pairs, *((b, a) for a, b in pairs)]:
        source, target = (plan.placement[rank] for rank in pair)
        nic = "intra_node" if (source.cluster, source.node) == (target.cluster, target.node) else group.nic
        route = message_route(plan.fleet, source, target, nic)
        found[("message", *pair)] = Carried((route,), (alpha_beta_cost((route,), capacities),), pair, times)
    return found


def unfolded(plan: Plan, drawn: Drawn = NOTHING) -> Folding:
    """Every rank, carrier and link in a class of its own."""
    carriers = carriers_of(plan)
    ranks, links = range(len(plan.placement)), _links(carriers)
    return _folding(plan, carriers, ranks, ranks, range(len(carriers)), range(len(links)), drawn)


def fold(plan: Plan, drawn: Drawn = NOTHING) -> Folding:
    """The coarsest partition that colour refinement finds; trouble tells ranks and links apart. Jitter leaves none alike."""
    if drawn.jitter:
        return unfolded(plan, drawn)
    sites = Sites(plan)
    seen = copies(plan, sites, drawn)
    carriers = carriers_of(plan, sites, seen)
    links = _links(carriers)
    number = {link: index for index, link in enumerate(links)}
    capacities = Capacities(plan.fleet)
    config = plan.config
    rank_colour = _number(
        [
            (
                plan.placement[rank].cluster,
                config.place(rank)[2],
                config.microbatches_of(config.place(rank)[1]),
                drawn.slows(plan.placement[rank]),
            )
            for rank in seen.shown
        ]
    )
    link_colour = _number(
        [(capacities(link) * drawn.leaves(link), drawn.closes(link), link[0] == "trunk") for link in links]
    )  # copies not shown use trunks only
    uses = [
        tuple(tuple((number[link], _digits(weight)) for link, weight in leg.use) for leg in carried.legs)
        for carried in carriers.values()
    ]
    carrier_colour = _number(
        [
            (key[0], key[-1] if key[0] != "message" else "", carried.times, carried.routes[0].interference,
             tuple(route.overhead for route in carried.routes),
             tuple((_digits(found.latency), _digits(found.per_byte)) for found in carried.paces),
             tuple((_digits(leg.share), _digits(leg.latency)) for leg in carried.legs))
            for key, carried in carriers.items()
        ]
    )  # fmt: skip
    place = {rank: index for index, rank in enumerate(seen.shown)}
    members = [
        (key[0] in ("message", "embedding"), [(place[rank], int(seen.times[rank])) for rank in carried.ranks])
        for key, carried in carriers.items()
    ]
    rank_carriers: list[list[tuple[int, int]]] = [[] for _ in seen.shown]
    link_carriers: list[list[tuple[int, int, float]]] = [[] for _ in links]
    for index, (ordered, ranks) in enumerate(members):
        for position, (rank, _) in enumerate(ranks):
            rank_carriers[rank].append((index, position if ordered else 0))
        for leg, use in enumerate(uses[index]):
            for link, weight in use:
                link_carriers[link].append((index, leg, weight))
    while True:
        before = len(set(rank_colour)), len(set(link_colour)), len(set(carrier_colour))
        carrier_colour = _number(
            [
                (colour,
                 tuple(rank_colour[r] for r, _ in ranks) if ordered else tuple(sorted((rank_colour[r], t) for r, t in ranks)),
                 tuple(tuple(sorted((link_colour[link], w) for link, w in leg)) for leg in use))
                for colour, (ordered, ranks), use in zip(carrier_colour, members, uses, strict=True)
            ]
        )  # fmt: skip
        rank_colour = _number(
            [
                (colour, tuple(sorted((carrier_colour[c], position) for c, position in mine)))
                for colour, mine in zip(rank_colour, rank_carriers, strict=True)
            ]
        )
        link_colour = _number(
            [
                (colour, tuple(sorted((carrier_colour[c], leg, weight) for c, leg, weight in mine)))
                for colour, mine in zip(link_colour, link_carriers, strict=True)
            ]
        )
        if (len(set(rank_colour)), len(set(link_colour)), len(set(carrier_colour))) == before:
            classes = np.empty(config.world_size, np.int64)
            classes[list(seen.shown)] = rank_colour
            return _folding(plan, carriers, seen.shown, classes[seen.standing].tolist(), carrier_colour, link_colour, drawn)


def _links(carriers: dict[Key, Carried]) -> list[LinkName]:
    return list(dict.fromkeys(link for carried in carriers.values() for leg in carried.legs for link, _ in leg.use))


def _number(signatures: Sequence[Hashable]) -> list[int]:
    """Equal signatures get equal numbers, in order of first appearance."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(signature, len(known)) for signature in signatures]


def _digits(weight: float) -> float:
    """Twelve digits: sums of equal shares in another order are still equal."""
    return float(f"{weight:.12g}")


def _folding(
    plan: Plan,
    carriers: dict[Key, Carried],
    shown: Sequence[int],
    rank_colour: Sequence[int],
    carrier_colour: Sequence[int],
    link_colour: Sequence[int],
    drawn: Drawn,
) -> Folding:
    """The quotient: one rank, carrier and link of every class; weights on a link summed over all carriers of a class.

    Copies of a carrier that are not shown are on the same trunks, and on none of the other links."""
    links = _links(carriers)
    first_of_class: dict[int, LinkName] = {}
    for link, colour in zip(links, link_colour, strict=True):
        first_of_class.setdefault(colour, link)
    chosen = {link: colour for colour, link in first_of_class.items()}
    weights: dict[tuple[int, int, int], float] = {}
    first_carrier: dict[int, Carried] = {}
    for colour, carried in zip(carrier_colour, carriers.values(), strict=True):
        first_carrier.setdefault(colour, carried)
        for index, leg in enumerate(carried.legs):
            for link, weight in leg.use:
                if link in chosen:
                    place = (colour, index, chosen[link])
                    many = carried.times if link[0] == "trunk" else 1
                    weights[place] = weights.get(place, 0.0) + weight * many
    uses: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for (colour, index, link_class), weight in sorted(weights.items()):
        uses.setdefault((colour, index), []).append((link_class, weight))
    folded = []
    for colour in range(len(first_carrier)):
        carried = first_carrier[colour]
        members = tuple(dict.fromkeys(rank_colour[rank] for rank in carried.ranks))
        legs = (FoldedLeg(tuple(uses[(colour, index)]), leg.share, leg.latency) for index, leg in enumerate(carried.legs))
        routes = tuple(
            FoldedRoute(tuple(itertools.islice(legs, len(route.legs))), route.overhead, found)
            for route, found in zip(carried.routes, carried.paces, strict=True)
        )
        folded.append(Carrier(routes, carried.routes[0].interference, members))
    representatives: dict[int, int] = {}
    for rank in shown:
        representatives.setdefault(rank_colour[rank], rank)
    capacities, by_class = Capacities(plan.fleet), [first_of_class[c] for c in range(len(first_of_class))]
    return Folding(
        classes=tuple(rank_colour),
        representatives=tuple(representatives[c] for c in range(len(representatives))),
        capacities=tuple(capacities(link) * drawn.leaves(link) for link in by_class),
        carriers=tuple(folded),
        of=dict(zip(carriers, carrier_colour, strict=True)),
        closed=tuple((c, *times) for c, link in enumerate(by_class) for times in drawn.closes(link)),
    )
