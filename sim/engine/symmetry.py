"""Symmetry reduction: the engine simulates one rank of each class of ranks that must behave alike, and counts it for all.

Two steps find the classes. First `sim.engine.replica_blocks` finds interchangeable blocks of replicas and keeps one of each
kind. Then colour refinement (1-dimensional Weisfeiler-Leman; McKay and Piperno, arXiv 1301.1493) partitions the ranks, the
carriers (collectives and messages, `sim.engine.carriers`) and the links of these blocks. Ranks start with the colour of
their cluster, pipeline rank, number of microbatches and slowdown; links with that of their capacity and outages; carriers
with that of their operation and costs. Each round recolours a carrier by the colours of its ranks and links, and a rank or
link by those of its carriers. Invariant: what has different colours is known to differ, so classes only split. When a round
splits none, the partition is equitable: each member of a class meets every other class equally often, with equal weights.
Of unlike pipelines (`sim.plan.pipelines`) all ranks are kept: the second step alone finds their classes.

The reduction is exact, provided that no two 64-bit hashes of features collide and that costs which agree to twelve digits are
equal. Ranks of one class run the same program with the same durations, and a max-min fair network gives the flows of one
carrier class equal rates. So the engine simulates one rank, one carrier and one link of each class, with the weights of the
whole carrier class on that link; the timeline of the rank is that of its class. `unfolded` puts every rank in a class of its
own, for comparison."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sim.engine.carriers import Carrier, Key, carriers_of, carriers_of_pipelines
from sim.engine.faults import NO_FAULTS, DrawnFaults
from sim.engine.rank_plans import RankPlans
from sim.engine.replica_blocks import Copies, copies, no_copies
from sim.network.alpha_beta import AlphaBeta
from sim.network.paths import Capacities, LinkName
from sim.network.rings import Sites
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.units import Bytes, BytesPerSecond, Seconds


@dataclass(frozen=True, slots=True)
class FoldedLeg:
    """A leg over link classes: (number of the class, weight summed over the carrier class) for each."""

    use: tuple[tuple[int, float], ...]
    share: float
    latency: Seconds


@dataclass(frozen=True, slots=True)
class FoldedRoute:
    """A route of a carrier class: its legs, and its alpha-beta cost on an idle network."""

    legs: tuple[FoldedLeg, ...]
    overhead: Seconds
    pace: AlphaBeta


@dataclass(frozen=True, slots=True)
class FoldedCarrier:
    """A class of collectives or messages: its routes, and the classes of the ranks that take part."""

    routes: tuple[FoldedRoute, ...]
    interference: float
    members: tuple[int, ...]

    def route(self, nbytes: Bytes) -> FoldedRoute:
        """The fastest route for a payload on an idle network, as in the closed forms."""
        return min(self.routes, key=lambda route: route.pace.seconds(nbytes))


@dataclass(frozen=True, slots=True)
class Folding:
    """Result of the reduction: `classes[rank]` is the class of a rank, `representatives[c]` one rank of class c.

    `capacities` are by link class, `carriers` by carrier class; `of` maps a carrier's key to its class. `closed` lists outages
    of link classes as (class, from, until)."""

    classes: tuple[int, ...]
    representatives: tuple[int, ...]
    capacities: tuple[BytesPerSecond, ...]
    carriers: tuple[FoldedCarrier, ...]
    of: dict[Key, int]
    closed: tuple[tuple[int, Seconds, Seconds], ...] = ()

    @property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """Ranks of every class, its representative first."""
        found: list[list[int]] = [[rank] for rank in self.representatives]
        for rank, index in enumerate(self.classes):
            if rank != found[index][0]:
                found[index].append(rank)
        return tuple(tuple(group) for group in found)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of ranks in every class."""
        count = Counter(self.classes)
        return tuple(count[c] for c in range(len(self.representatives)))


class _Colours(NamedTuple):
    """The class of every rank, link and carrier; during refinement, `ranks` has shown ranks only."""

    ranks: Sequence[int]
    links: Sequence[int]
    carriers: Sequence[int]

    @property
    def classes(self) -> tuple[int, ...]:
        """Number of classes of ranks, links and carriers."""
        return tuple(len(set(colours)) for colours in self)


def unfolded(plan: Plan | PipelinesPlan, drawn: DrawnFaults = NO_FAULTS) -> Folding:
    """No reduction: every rank, carrier and link is in a class of its own."""
    carriers = carriers_of_pipelines(plan) if isinstance(plan, PipelinesPlan) else carriers_of(plan)
    ranks = range(len(plan.placement))
    return _quotient(plan, carriers, ranks, _Colours(ranks, range(len(_links(carriers))), range(len(carriers))), drawn)


def fold(plan: Plan | PipelinesPlan, drawn: DrawnFaults = NO_FAULTS) -> Folding:
    """The symmetry reduction of a plan: the coarsest partition that colour refinement finds.

    Faults split classes; with jitter every rank is a class of its own."""
    if drawn.jitter:
        return unfolded(plan, drawn)
    if isinstance(plan, PipelinesPlan):
        block_copies, carriers = no_copies(len(plan.placement)), carriers_of_pipelines(plan)
    else:
        sites = Sites(plan)
        block_copies = copies(plan, sites, drawn)
        carriers = carriers_of(plan, sites, block_copies)
    incidence = _Incidence(carriers, block_copies)
    colours = _initial(plan, carriers, block_copies, drawn)
    before: tuple[int, ...] = ()
    while colours.classes != before:
        before = colours.classes
        colours = incidence.refined(colours)
    classes = np.empty(len(plan.placement), np.int64)
    classes[list(block_copies.shown)] = colours.ranks
    of_all_ranks = colours._replace(ranks=classes[block_copies.representative].tolist())
    return _quotient(plan, carriers, block_copies.shown, of_all_ranks, drawn)


def _initial(plan: Plan | PipelinesPlan, carriers: dict[Key, Carrier], block_copies: Copies, drawn: DrawnFaults) -> _Colours:
    """Initial colours: those of the properties that a shown rank, a link or a carrier has by itself."""
    plans, placement, capacities, ranks = RankPlans(plan), plan.placement, Capacities(plan.fleet), []
    for rank in block_copies.shown:
        number, pp_rank, microbatches = plans.program(rank)
        own = plans.plans[number]
        pipeline = (own.stages, own.config) if len(plans.plans) > 1 else ()
        device = placement[rank]
        ranks.append((device.cluster, pp_rank, microbatches, pipeline, drawn.slowdown(device)))
    links = [  # trunks differ from other links: they also carry the flows of copies that are not shown
        (capacities(link) * drawn.rate_share(link), drawn.outages(link), link[0] == "trunk") for link in _links(carriers)
    ]
    listed = [
        (key[0], key[-1] if key[0] != "message" else "", carrier.times, carrier.interference,
         tuple(route.overhead for route in carrier.routes),
         tuple((_digits(pace.latency), _digits(pace.per_byte)) for pace in carrier.paces),
         tuple((_digits(leg.share), _digits(leg.latency)) for leg in carrier.legs))
        for key, carrier in carriers.items()
    ]  # fmt: skip
    return _Colours(_number(ranks), _number(links), _number(listed))


class _Incidence:
    """Which shown ranks and which links every carrier uses, and the reverse: what a round of colour refinement reads.

    Source and target of a message, and first and last stage of a tied embedding, are told apart by their position."""

    def __init__(self, carriers: dict[Key, Carrier], block_copies: Copies):
        rank_index = {rank: index for index, rank in enumerate(block_copies.shown)}
        link_index = {link: index for index, link in enumerate(_links(carriers))}
        self.uses = [
            tuple(tuple((link_index[link], _digits(weight)) for link, weight in leg.use) for leg in carrier.legs)
            for carrier in carriers.values()
        ]
        self.members = [
            (key[0] in ("message", "embedding"), [(rank_index[rank], int(block_copies.times[rank])) for rank in carrier.ranks])
            for key, carrier in carriers.items()
        ]
        self.of_rank: list[list[tuple[int, int]]] = [[] for _ in rank_index]
        self.of_link: list[list[tuple[int, int, float]]] = [[] for _ in link_index]
        for index, (is_ordered, ranks) in enumerate(self.members):
            for position, (rank, _) in enumerate(ranks):
                self.of_rank[rank].append((index, position if is_ordered else 0))
            for leg, use in enumerate(self.uses[index]):
                for link, weight in use:
                    self.of_link[link].append((index, leg, weight))

    def refined(self, colours: _Colours) -> _Colours:
        """One round of colour refinement: split classes whose members meet other classes differently."""
        of_rank, of_link, of_carrier = colours
        of_carrier = _number(
            [
                (colour,
                 tuple(of_rank[r] for r, _ in ranks) if is_ordered else tuple(sorted((of_rank[r], t) for r, t in ranks)),
                 tuple(tuple(sorted((of_link[link], weight) for link, weight in leg)) for leg in use))
                for colour, (is_ordered, ranks), use in zip(of_carrier, self.members, self.uses, strict=True)
            ]
        )  # fmt: skip
        of_rank = _number(
            [
                (colour, tuple(sorted((of_carrier[c], position) for c, position in mine)))
                for colour, mine in zip(of_rank, self.of_rank, strict=True)
            ]
        )
        of_link = _number(
            [
                (colour, tuple(sorted((of_carrier[c], leg, weight) for c, leg, weight in mine)))
                for colour, mine in zip(of_link, self.of_link, strict=True)
            ]
        )
        return _Colours(of_rank, of_link, of_carrier)


def _links(carriers: dict[Key, Carrier]) -> list[LinkName]:
    return list(dict.fromkeys(link for carrier in carriers.values() for leg in carrier.legs for link, _ in leg.use))


def _number(signatures: Sequence[Hashable]) -> list[int]:
    """Colours: equal signatures get equal numbers, counted from 0 in order of first appearance."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(signature, len(known)) for signature in signatures]


def _digits(weight: float) -> float:
    """A weight rounded to twelve digits, so that equal shares summed in different orders compare equal."""
    return float(f"{weight:.12g}")


def _quotient(
    plan: Plan | PipelinesPlan, carriers: dict[Key, Carrier], shown: Sequence[int], colours: _Colours, drawn: DrawnFaults
) -> Folding:
    """The quotient of a plan by a partition: one rank, carrier and link of every class.

    `colours.ranks` has all ranks of the plan. Weights on a link are summed over all carriers of a class. Copies of a carrier
    that are not shown use the same trunks and no other shown link, so on trunks a carrier counts `times` times."""
    links = _links(carriers)
    first_of_class: dict[int, LinkName] = {}
    for link, colour in zip(links, colours.links, strict=True):
        first_of_class.setdefault(colour, link)
    chosen = {link: colour for colour, link in first_of_class.items()}
    weights: dict[tuple[int, int, int], float] = {}
    first_carrier: dict[int, Carrier] = {}
    for colour, carrier in zip(colours.carriers, carriers.values(), strict=True):
        first_carrier.setdefault(colour, carrier)
        for index, leg in enumerate(carrier.legs):
            for link, weight in leg.use:
                if link in chosen:
                    key = (colour, index, chosen[link])
                    many = carrier.times if link[0] == "trunk" else 1
                    weights[key] = weights.get(key, 0.0) + weight * many
    uses: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for (colour, index, link_class), weight in sorted(weights.items()):
        uses.setdefault((colour, index), []).append((link_class, weight))
    folded = []
    for colour in range(len(first_carrier)):
        carrier = first_carrier[colour]
        members = tuple(dict.fromkeys(colours.ranks[rank] for rank in carrier.ranks))
        legs = (FoldedLeg(tuple(uses[(colour, index)]), leg.share, leg.latency) for index, leg in enumerate(carrier.legs))
        routes = tuple(
            FoldedRoute(tuple(itertools.islice(legs, len(route.legs))), route.overhead, found)
            for route, found in zip(carrier.routes, carrier.paces, strict=True)
        )
        folded.append(FoldedCarrier(routes, carrier.interference, members))
    representatives: dict[int, int] = {}
    for rank in shown:
        representatives.setdefault(colours.ranks[rank], rank)
    capacities, by_class = Capacities(plan.fleet), [first_of_class[c] for c in range(len(first_of_class))]
    return Folding(
        classes=tuple(colours.ranks),
        representatives=tuple(representatives[c] for c in range(len(representatives))),
        capacities=tuple(capacities(link) * drawn.rate_share(link) for link in by_class),
        carriers=tuple(folded),
        of=dict(zip(carriers, colours.carriers, strict=True)),
        closed=tuple((c, *times) for c, link in enumerate(by_class) for times in drawn.outages(link)),
    )
