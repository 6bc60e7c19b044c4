"""The mixed-integer programme that assigns experts, and their replicas, to places: ranks of an ep group, or whole nodes of it.

Variables: x[e, p], copies of expert e in place p; y[s, e, p], share of the tokens of source s for expert e that are computed in
place p. Each token is computed once (the y of s and e add up to 1), only where a copy is (y <= x), and every slot is filled.
Objective: seconds of the busiest link in dispatch and in combine, and of the rank with most to compute, each a variable above
one row of the y for each link or place (a minimum of maxima). Without replicas y = x, and the y are left out.

Over nodes in place of ranks the programme is a relaxation: fewer variables, and its bound holds for ranks, too, if each row is
at most the mean of rows that hold for ranks (`planner.experts.search`). With pairs, z[q, d] is the share of tokens that choose
both experts of pair q and find both in domain d, which are sent once (`planner.experts.problem`).

Several blocks of ep groups may share the x, because ranks of equal index hold copies of one expert; each has its own y and z,
and the slowest counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
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
    """The best assignment found: `copies[e, p]`, `shares[s, e, p]` for each block, and the solver's result, in seconds."""

    copies: NDArray[np.int64]
    shares: tuple[Numbers, ...]
    solution: Solution


class _Copies:
    """The variables x of a programme: copies of each expert in each place."""

    def __init__(self, programme: Programme, rows: ExpertRows):
        self.programme, self.experts = programme, rows.tokens.shape[1]
        self.replicated = sum(rows.slots) > self.experts
        self.of = [
            [programme.integer(f"x_{e}_{p}", 0, ranks if self.replicated else 1) for p, ranks in enumerate(rows.ranks)]
            for e in range(self.experts)
        ]
        for p, slots in enumerate(rows.slots):
            programme.require(f"slots_{p}", total((held[p], 1.0) for held in self.of) == slots)
        for e, held in enumerate(self.of):
            number = total((one, 1.0) for one in held)
            programme.require(f"held_{e}", number >= 1 if self.replicated else number == 1)


class _Block:
    """Shares and seconds of one block of a programme; `rows` are scaled. Its sum of seconds is at most `slowest`."""

    def __init__(self, name: str, copies: _Copies, rows: ExpertRows, slowest: Variable):
        self.name, self.copies, self.rows, self.programme = name, copies, rows, copies.programme
        self.sources, self.places = len(rows.tokens), len(rows.slots)
        self.shares: dict[tuple[int, int, int], Variable] = {}
        self.together: dict[tuple[int, int, int], Variable] = {}
        if copies.replicated:
            self._share()
        if rows.pairs:
            self._join_pairs()
        dispatch, combine = (_undominated(links) for links in (rows.dispatch, rows.combine))
        parts = [(self._above("experts", _of_places(rows), rows.least, False), 1.0)]
        if len(dispatch) == len(combine) and np.array_equal(dispatch, combine):
            parts.append((self._above("exchange", dispatch, 0.0, bool(rows.pairs)), 2.0))
        else:
            sides = (("out", dispatch), ("back", combine))
            parts += [(self._above(side, links, 0.0, bool(rows.pairs)), 1.0) for side, links in sides]
        self.programme.require(f"slowest_{name}", total([*parts, (slowest, -1.0)]) <= 0)

    def _share(self) -> None:
        for e, held in enumerate(self.copies.of):
            for s in range(self.sources):
                for p in range(self.places):
                    share = self.shares[s, e, p] = self.programme.real(f"y_{self.name}_{s}_{e}_{p}", 0.0, 1.0)
                    self.programme.require(f"there_{self.name}_{s}_{e}_{p}", total(((share, 1.0), (held[p], -1.0))) <= 0)
                own = total((self.shares[s, e, p], 1.0) for p in range(self.places))
                self.programme.require(f"all_{self.name}_{s}_{e}", own == 1)

    def _join_pairs(self) -> None:
        domains = [[p for p in range(self.places) if self.rows.domain[p] == d] for d in range(max(self.rows.domain) + 1)]
        for q, pair in enumerate(self.rows.pairs):
            for d, members in enumerate(domains):
                for s in range(self.sources if self.copies.replicated else 1):
                    both = self.together[s, q, d] = self.programme.real(f"z_{self.name}_{s}_{q}_{d}", 0.0, 1.0)
                    for expert in pair:
                        held = [(self.shares.get((s, expert, p), self.copies.of[expert][p]), -1.0) for p in members]
                        self.programme.require(f"both_{self.name}_{s}_{q}_{d}_{expert}", total([(both, 1.0), *held]) <= 0)

    def _above(self, part: str, links: Numbers, least: Seconds, pairs: bool) -> Variable:
        """A variable that is at least the seconds of every row `links[l, s, p]`, and `least`."""
        above = self.programme.real(f"{part}_{self.name}", least)
        for index, row in enumerate(links):
            terms = [(above, -1.0)]
            weights = row[:, None, :] * self.rows.tokens[:, :, None]  # source, expert, place
            if self.copies.replicated:
                terms += [(self.shares[s, e, p], float(weights[s, e, p])) for s, e, p in np.argwhere(weights).tolist()]
            else:
                of_copy = weights.sum(0)
                terms += [(self.copies.of[e][p], float(of_copy[e, p])) for e, p in np.argwhere(of_copy).tolist()]
            if pairs:
                terms += self._savings(row)
            self.programme.require(f"{part}_{self.name}_{index}", total(terms) <= 0)
        return above

    def _savings(self, row: Numbers) -> list[tuple[Variable, float]]:
        assert self.rows.saved is not None
        first = [self.rows.domain.index(d) for d in range(max(self.rows.domain) + 1)]
        found = []
        for (s, q, d), both in self.together.items():
            seconds = row[s, first[d]] if self.copies.replicated else row[:, first[d]].sum()
            if seconds:
                found.append((both, -float(self.rows.saved[q] * seconds)))
        return found

    def values(self, copies: NDArray[np.int64]) -> Numbers:
        """Shares in the solution; without replicas those of the only copies."""
        shares: Numbers = np.broadcast_to(copies.astype(float), (self.sources, *copies.shape)).copy()
        for at, share in self.shares.items():
            shares[at] = share.varValue or 0.0
        shares[shares < LEAST_SHARE] = 0.0
        shares /= shares.sum(2, keepdims=True)
        return shares


def assign(blocks: tuple[ExpertRows, ...], scale: Seconds, limit: TimeLimit) -> Assigned | None:
    """The assignment with least seconds found within `NODES` nodes of the search tree and the time limit; None where none was.

    `blocks`: rows of blocks with equal places, which get one assignment, each with its own shares; the slowest counts. `scale`:
    seconds of some assignment, by which the programme is scaled, as solvers work best near 1."""
    programme = Programme("experts")
    copies, slowest = _Copies(programme, blocks[0]), programme.real("slowest")
    made = [_Block(str(index), copies, _scaled(rows, scale), slowest) for index, rows in enumerate(blocks)]
    programme.minimise(total(((slowest, 1.0),)))
    try:
        solution = programme.solve(NODES, limit)
    except NothingFound:
        return None
    if solution is None:
        return None
    held = np.array([[count(one) for one in own] for own in copies.of])
    found = Solution(solution.objective * scale, solution.bound * scale, solution.proved, solution.solver)
    return Assigned(held, tuple(block.values(held) for block in made), found)


def _scaled(rows: ExpertRows, scale: Seconds) -> ExpertRows:
    return replace(
        rows,
        dispatch=rows.dispatch / scale,
        combine=rows.combine / scale,
        compute=rows.compute / scale,
        least=rows.least / scale,
    )


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
    programme, rows = Programme("shares"), _scaled(rows, scale)
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
        for index, row in enumerate(_undominated(links)):
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
