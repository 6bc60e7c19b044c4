"""The placement problem of one layer: which rank of an ep group holds which experts, and what a placement costs.

Seconds are those of one layer and microbatch, forward and backward. Ranks of one node send alike, so tokens are counted by node
of origin. All shares are of the choices of one rank's tokens: they add up to 1 for each source.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.units import Bytes, Seconds

Numbers: TypeAlias = NDArray[np.float64]
Ranks: TypeAlias = tuple[tuple[int, ...], ...]
"""Experts of each rank, or ranks of each node."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Experts that tokens choose together, where a token goes once to each domain (deduplicating dispatchers).

    `experts[q]`: the two experts of pair q. `saved[q]`: share of a rank's choices that is not sent where both are in one
    domain. `domain[r]`: node of rank r, or r itself where all ranks are on one node.

    A token with m of its k experts in a domain is sent once. The programme counts m - m (m - 1) / k: exact for m = 1 and m = k,
    and above 1 between, so that the count is an upper bound of what is sent. Hence saved = 2 / k x tokens of the pair / all
    choices."""

    experts: tuple[tuple[int, int], ...]
    saved: Numbers
    domain: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ExpertProblem:
    """Ranks, links and tokens of a layer.

    `nodes`: ranks of each node. `clusters[s]`: cluster of node s. `tokens[s, e]`: share of expert e among the choices of a rank
    of node s. `dispatch[l, s, r]`: seconds that link l needs if all ranks of node s send all their choices to rank r,
    `combine`: the way back. `passes`: exchanges of each direction, forward and backward. `compute[r]`: seconds that the experts
    of rank r take beyond no tokens if they get the mean of all ranks. `sent`: bytes of one rank's choices."""

    slots: int
    nodes: Ranks
    clusters: tuple[str, ...]
    tokens: Numbers
    dispatch: Numbers
    combine: Numbers
    passes: float
    compute: Numbers
    sent: Bytes
    pairs: Pairs | None = None

    @property
    def experts(self) -> int:
        """Number of experts."""
        return int(self.tokens.shape[1])

    @property
    def ranks(self) -> int:
        """Number of ranks of the ep group."""
        return len(self.compute)

    @property
    def replicas(self) -> int:
        """Slots beyond one for each expert."""
        return self.slots * self.ranks - self.experts

    @functools.cached_property
    def sizes(self) -> Numbers:
        """Ranks of each node."""
        return np.array([float(len(node)) for node in self.nodes])

    @functools.cached_property
    def node_of(self) -> tuple[int, ...]:
        """Node of each rank."""
        found = {rank: index for index, node in enumerate(self.nodes) for rank in node}
        return tuple(found[rank] for rank in range(self.ranks))

    @functools.cached_property
    def load(self) -> Numbers:
        """Tokens of each expert from all ranks; all add up to the number of ranks, so that 1 is the mean of a rank."""
        loads: Numbers = self.sizes @ self.tokens
        return loads


@dataclass(frozen=True, eq=False)
class ExpertPlacement:
    """`ranks[r]`: experts of rank r. `shares[c, s]`: share of the tokens of node s for an expert that its copy c takes, copies
    in the order of ranks and their experts; None: the copies of an expert take equal shares."""

    ranks: Ranks
    shares: Numbers | None = None

    def copies(self) -> Iterator[tuple[int, int]]:
        """(expert, rank) of each copy, in the order of `shares`."""
        return ((expert, rank) for rank, held in enumerate(self.ranks) for expert in held)


@dataclass(frozen=True, slots=True)
class PlacementCost:
    """What a placement costs.

    dispatch, combine: seconds of the busiest link in all passes. experts: seconds of the rank that takes longest, beyond no
    tokens. busiest: tokens of the busiest rank over the mean. longest: as `busiest`, of the rank that takes longest, in tokens
    of the slowest device. between_clusters, out_of_node: bytes of one exchange from one cluster to another, and in or out of
    one node, whichever is most."""

    dispatch: Seconds
    combine: Seconds
    experts: Seconds
    busiest: float
    longest: float
    between_clusters: Bytes
    out_of_node: Bytes

    @property
    def exchange(self) -> Seconds:
        """Seconds of all exchanges."""
        return self.dispatch + self.combine

    @property
    def total(self) -> Seconds:
        """The objective: seconds of all exchanges and of the experts."""
        return self.exchange + self.experts


def received(problem: ExpertProblem, placement: ExpertPlacement) -> tuple[Numbers, Numbers]:
    """(by node of origin and rank: share of choices that the rank computes; by node of origin, expert and domain of
    `pairs`)."""
    copies = np.array(list(placement.copies()))
    experts, ranks = copies[:, 0], copies[:, 1]
    number = np.bincount(experts, minlength=problem.experts)
    shares = (1.0 / number[experts])[:, None] if placement.shares is None else placement.shares
    flows = problem.tokens.T[experts] * shares  # copy, node of origin
    sources, none = len(problem.nodes), np.zeros((0, 0, 0))
    by_rank: Numbers = np.stack([np.bincount(ranks, flows[:, s], problem.ranks) for s in range(sources)]).astype(float)
    if problem.pairs is None:
        return by_rank, none
    domain = np.array(problem.pairs.domain)
    by_domain = np.zeros((sources, problem.experts, domain.max() + 1))
    for s in range(sources):
        np.add.at(by_domain[s], (experts, domain[ranks]), np.broadcast_to(shares, (len(copies), sources))[:, s])
    return by_rank, by_domain


def cost(problem: ExpertProblem, placement: ExpertPlacement) -> PlacementCost:
    """The cost of a placement, with exact maxima over links and ranks."""
    by_rank, by_domain = received(problem, placement)
    sent = by_rank if problem.pairs is None else by_rank - _saved(problem, problem.pairs, by_domain)
    loads = problem.sizes @ by_rank
    longest = float((problem.compute * loads).max())
    slowest = float(problem.compute.max())
    return PlacementCost(
        problem.passes * float(np.tensordot(problem.dispatch, sent, 2).max(initial=0.0)),
        problem.passes * float(np.tensordot(problem.combine, sent, 2).max(initial=0.0)),
        longest,
        float(loads.max()),
        longest / slowest if slowest else float(loads.max()),
        *_crossing(problem, sent),
    )


def _saved(problem: ExpertProblem, pairs: Pairs, by_domain: Numbers) -> Numbers:
    """Choices that are not sent, by node of origin and rank: those of a domain are divided equally among its ranks."""
    first, second = np.array(pairs.experts).T
    both = np.minimum(by_domain[:, first], by_domain[:, second])  # node of origin, pair, domain
    of_domain = np.einsum("q,sqd->sd", pairs.saved, both)
    domain = np.array(pairs.domain)
    saved: Numbers = of_domain[:, domain] / np.bincount(domain)[domain]
    return saved


def _crossing(problem: ExpertProblem, sent: Numbers) -> tuple[Bytes, Bytes]:
    """(bytes from one cluster to another, bytes in or out of a node), the most of any, of one exchange."""
    bytes_by_rank = problem.sent * problem.sizes[:, None] * sent
    node = np.array(problem.node_of)
    between = np.stack([bytes_by_rank[:, node == target].sum(1) for target in range(len(problem.nodes))], axis=1)
    names = np.array(problem.clusters)
    pairs = [(a, b) for a in dict.fromkeys(problem.clusters) for b in dict.fromkeys(problem.clusters) if a != b]
    across = max((float(between[np.ix_(names == a, names == b)].sum()) for a, b in pairs), default=0.0)
    np.fill_diagonal(between, 0.0)
    return across, float(max(between.sum(0).max(), between.sum(1).max()))
