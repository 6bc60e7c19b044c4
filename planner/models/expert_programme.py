"""The mixed-integer programme that assigns experts, and their replicas, to places: ranks of an ep group, or whole nodes of it.

Variables: x[e, p], copies of expert e in place p; y[s, e, p], share of the tokens of source s for expert e that are computed in
place p. Each token is computed once (the y of s and e add up to 1), only where a copy is (y <= x), and every slot is filled.
Objective: seconds of the busiest link in dispatch and in combine, and of the rank with most to compute, each a variable above
one row of the y for each link or place (a minimum of maxima). Without replicas y = x, and the y are left out.

Over nodes in place of ranks the programme is a relaxation: fewer variables, and its bound holds for ranks, too, if each row is
at most the mean of rows that hold for ranks (`planner.experts.search`). With pairs, z[q, d] is the share of tokens that choose
both experts of pair q and find both in domain d, which are sent once (`planner.experts.problem`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.models.solver import NothingFound, Programme, Solution, Variable, count, total
from planner.time_limit import TimeLimit
from sim.units import Seconds

NODES = 200_000
"""Nodes of the branch-and-bound tree (a guess); the time limit ends larger programmes before."""
ROUNDED = 12
"""Decimal places of scaled seconds, below which two rows are the same one: more than doubles are off after a sum."""
LEAST_SHARE = 1e-9
"""Shares below this are taken as none: rounding of the solver."""

Numbers: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ExpertRows:
    """Data of the programme, for S sources, E experts and P places.

    `tokens[s, e]`: share of expert e in the choices of source s. `slots[p]`, `ranks[p]`: slots of a place, and ranks, which are
    the most copies of one expert there. `dispatch[l, s, p]`, `combine`: seconds of link l if source s sends all its choices to
    place p, in all passes. `compute[p, s]`: seconds of place p if source s sends all its choices there. `least`: seconds that
    the experts take in any placement. Pairs: `pairs[q]` are two experts, `saved[q]` the share of choices that is not sent where
    both are in one domain, `domain[p]` that of a place; the rows of links are equal for all places of a domain."""

    tokens: Numbers
    slots: tuple[int, ...]
    ranks: tuple[int, ...]
    dispatch: Numbers
    combine: Numbers
    compute: Numbers
    least: Seconds = 0.0
    pairs: tuple[tuple[int, int], ...] = ()
    saved: Numbers | None = None
    domain: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Assigned:
    """The best assignment found: `copies[e, p]`, `shares[s, e, p]`, and the solver's result, in seconds."""

    copies: NDArray[np.int64]
    shares: Numbers
    solution: Solution


class _Model:
    """Variables and constraints of one programme; seconds are divided by `scale`, as solvers work best near 1."""

    def __init__(self, rows: ExpertRows, scale: Seconds):
        self.rows, self.scale = rows, scale
        self.programme = Programme("experts")
        self.sources, self.experts = rows.tokens.shape
        self.places = len(rows.slots)
        self.replicated = sum(rows.slots) > self.experts
        self.copies = [[self._copies(e, p) for p in range(self.places)] for e in range(self.experts)]
        self.shares: dict[tuple[int, int, int], Variable] = {}
        self.together: dict[tuple[int, int, int], Variable] = {}
        self._place_experts()
        if rows.pairs:
            self._join_pairs()

    def _copies(self, expert: int, place: int) -> Variable:
        most = self.rows.ranks[place] if self.replicated else 1
        return self.programme.integer(f"x_{expert}_{place}", 0, most)

    def share(self, source: int, expert: int, place: int) -> Variable:
        """Share of a source's tokens for an expert in a place: a variable of its own only with replicas."""
        return self.shares[source, expert, place] if self.replicated else self.copies[expert][place]

    def _place_experts(self) -> None:
        require = self.programme.require
        for p, slots in enumerate(self.rows.slots):
            require(f"slots_{p}", total((held[p], 1.0) for held in self.copies) == slots)
        for e, held in enumerate(self.copies):
            if not self.replicated:
                require(f"once_{e}", total((one, 1.0) for one in held) == 1)
                continue
            require(f"held_{e}", total((one, 1.0) for one in held) >= 1)
            for s in range(self.sources):
                for p in range(self.places):
                    share = self.shares[s, e, p] = self.programme.real(f"y_{s}_{e}_{p}", 0.0, 1.0)
                    require(f"there_{s}_{e}_{p}", total(((share, 1.0), (held[p], -1.0))) <= 0)
                require(f"all_{s}_{e}", total((self.shares[s, e, p], 1.0) for p in range(self.places)) == 1)

    def _join_pairs(self) -> None:
        domains = [[p for p in range(self.places) if self.rows.domain[p] == d] for d in range(max(self.rows.domain) + 1)]
        for q, pair in enumerate(self.rows.pairs):
            for d, members in enumerate(domains):
                for s in range(self.sources if self.replicated else 1):
                    both = self.together[s, q, d] = self.programme.real(f"z_{s}_{q}_{d}", 0.0, 1.0)
                    for expert in pair:
                        held = [(self.share(s, expert, p), -1.0) for p in members]
                        self.programme.require(f"both_{s}_{q}_{d}_{expert}", total([(both, 1.0), *held]) <= 0)

    def above(self, name: str, links: Numbers, least: Seconds, pairs: bool) -> Variable:
        """A variable that is at least the scaled seconds of every row `links[l, s, p]`, and `least`."""
        slowest = self.programme.real(name, least)
        for index, row in enumerate(links):
            terms = [(slowest, -1.0)]
            weights = row[:, None, :] * self.rows.tokens[:, :, None]  # source, expert, place
            if self.replicated:
                found = np.argwhere(weights)
                terms += [(self.shares[s, e, p], float(weights[s, e, p])) for s, e, p in found.tolist()]
            else:
                of_copy = weights.sum(0)
                terms += [(self.copies[e][p], float(of_copy[e, p])) for e, p in np.argwhere(of_copy).tolist()]
            if pairs:
                terms += self._savings(row)
            self.programme.require(f"{name}_{index}", total(terms) <= 0)
        return slowest

    def _savings(self, row: Numbers) -> list[tuple[Variable, float]]:
        assert self.rows.saved is not None
        first = [self.rows.domain.index(d) for d in range(max(self.rows.domain) + 1)]
        found = []
        for (s, q, d), both in self.together.items():
            seconds = row[s, first[d]] if self.replicated else row[:, first[d]].sum()
            if seconds:
                found.append((both, -float(self.rows.saved[q] * seconds)))
        return found

    def assigned(self, solution: Solution) -> Assigned:
        """Values of the variables; the seconds of the solution are scaled back."""
        copies = np.array([[count(one) for one in held] for held in self.copies])
        shares = np.broadcast_to(copies.astype(float), (self.sources, *copies.shape)).copy()
        for at, share in self.shares.items():
            shares[at] = share.varValue or 0.0
        shares[shares < LEAST_SHARE] = 0.0
        shares /= shares.sum(2, keepdims=True)
        objective, bound = solution.objective * self.scale, solution.bound * self.scale
        return Assigned(copies, shares, Solution(objective, bound, solution.proved, solution.solver))


def assign(rows: ExpertRows, scale: Seconds, limit: TimeLimit) -> Assigned | None:
    """The assignment with least seconds found within `NODES` nodes of the search tree and the time limit; None where none was.

    `scale`: seconds of some assignment, by which the programme is scaled."""
    model = _Model(rows, scale)
    dispatch, combine = (_undominated(links / scale) for links in (rows.dispatch, rows.combine))
    parts = [model.above("experts", _of_places(rows) / scale, rows.least / scale, False)]
    weights = [1.0]
    if len(dispatch) == len(combine) and np.array_equal(dispatch, combine):
        parts.append(model.above("exchange", dispatch, 0.0, bool(rows.pairs)))
        weights.append(2.0)
    else:
        parts += [model.above(name, links, 0.0, bool(rows.pairs)) for name, links in (("out", dispatch), ("back", combine))]
        weights += [1.0, 1.0]
    model.programme.minimise(total(zip(parts, weights, strict=True)))
    try:
        solution = model.programme.solve(NODES, limit)
    except NothingFound:
        return None
    return None if solution is None else model.assigned(solution)


def _of_places(rows: ExpertRows) -> Numbers:
    """The compute of each place as a row over all places, of which it is the only one."""
    places, sources = rows.compute.shape
    found = np.zeros((places, sources, places))
    for place in range(places):
        found[place, :, place] = rows.compute[place]
    return found


def _undominated(links: Numbers) -> Numbers:
    """Rows of links that may be the busiest, sorted: those that are nowhere above another row are left out."""
    flat = np.unique(links.reshape(len(links), math.prod(links.shape[1:])).round(ROUNDED), axis=0)
    kept = [index for index, row in enumerate(flat) if row.any() and not _is_dominated(flat, index)]
    return flat[kept].reshape(len(kept), *links.shape[1:])


def _is_dominated(rows: Numbers, index: int) -> bool:
    """Whether another row is at least as large everywhere (rows are distinct)."""
    above = (rows >= rows[index]).all(axis=1)
    above[index] = False
    return bool(above.any())


def best_shares(rows: ExpertRows, copies: list[tuple[int, int]], scale: Seconds, limit: TimeLimit) -> Numbers | None:
    """Shares of the tokens of each source that the given copies (expert, place) take, with least seconds; [copy, source].

    A linear programme; savings by pairs are left out. None where the solver found nothing."""
    programme = Programme("shares")
    sources = len(rows.tokens)
    shares = [[programme.real(f"y_{c}_{s}", 0.0, 1.0) for s in range(sources)] for c in range(len(copies))]
    of_expert: dict[int, list[int]] = {}
    for c, (expert, _) in enumerate(copies):
        of_expert.setdefault(expert, []).append(c)
    for expert, own in of_expert.items():
        for s in range(sources):
            programme.require(f"all_{expert}_{s}", total((shares[c][s], 1.0) for c in own) == 1)
    parts = []
    for name, links in (("out", rows.dispatch), ("back", rows.combine), ("experts", _of_places(rows))):
        slowest = programme.real(name)
        parts.append((slowest, 1.0))
        for index, row in enumerate(_undominated(links / scale)):
            weights = [
                (shares[c][s], float(row[s, place] * rows.tokens[s, expert]))
                for c, (expert, place) in enumerate(copies)
                for s in np.flatnonzero(row[:, place]).tolist()
            ]
            programme.require(f"{name}_{index}", total([(slowest, -1.0), *weights]) <= 0)
    programme.minimise(total(parts))
    try:
        if programme.solve(NODES, limit) is None:
            return None
    except NothingFound:
        return None
    found = np.array([[one.varValue or 0.0 for one in own] for own in shares])
    found[found < LEAST_SHARE] = 0.0
    for own in of_expert.values():
        found[own] /= found[own].sum(0, keepdims=True)
    return found
