"""Search for the placement of experts with least seconds: a mixed-integer programme, then local improvement.

Small problems are solved over ranks: the solver's bound is that of the problem. Larger ones are solved over nodes, whose ranks
are interchangeable for every link outside: fewer variables, no symmetry inside nodes. The experts of each node are then packed
on its ranks, hottest first, and exchanged between ranks while that saves time. The bound of the programme over nodes holds for
ranks: a row of a node is the mean of the rows of its ranks (links that differ only in device or NIC), which is at most their
maximum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.experts import rules
from planner.experts.problem import ExpertPlacement, ExpertProblem, Numbers, PlacementCost, cost
from planner.models.expert_programme import Assigned, ExpertRows, assign, best_shares
from planner.time_limit import TimeLimit
from sim.network.paths import LinkName
from sim.units import Seconds

EXACT = 200
"""Most experts x ranks of a problem that is solved over ranks (a guess). More take the solver minutes."""
EXCHANGES = 400
"""Most exchanges of two experts that improve one placement (a guess)."""
PROVED = 1e-4
"""Gap up to which a placement is called optimal: that of the solver."""


@dataclass(frozen=True, slots=True)
class Found:
    """A placement, its cost, and a bound: no placement, with any shares, takes fewer seconds (0 where nothing is known)."""

    placement: ExpertPlacement
    cost: PlacementCost
    bound: Seconds

    @property
    def gap(self) -> float:
        """1 - bound / seconds."""
        return max(0.0, 1.0 - self.bound / self.cost.total) if self.cost.total else 0.0

    @property
    def is_optimal(self) -> bool:
        """Whether the placement is proved to be optimal."""
        return self.gap <= PROVED


def find(problem: ExpertProblem, links: tuple[LinkName, ...], limit: TimeLimit) -> Found:
    """The best placement found: of the programme, or of a rule where that is better, each improved by exchanges."""
    starts = [rule(problem) for rule in (rules.contiguous, rules.round_robin, rules.balanced, rules.per_node)]
    best = min(starts, key=lambda placement: cost(problem, placement).total)
    scale = cost(problem, best).total
    if not scale:
        return Found(best, cost(problem, best), 0.0)
    exact = problem.experts * problem.ranks <= EXACT
    rows = rank_rows(problem) if exact else node_rows(problem, links)
    assigned = assign(rows, scale, TimeLimit(max(limit.seconds_left, 0.1)))
    candidates = [best] if assigned is None else [best, _on_ranks(problem, assigned, exact)]
    improved = [_improved(problem, one, limit) for one in candidates]
    if problem.replicas:
        improved += list(_shared(problem, [*candidates, *improved], scale, limit))
    chosen = min(improved, key=lambda placement: cost(problem, placement).total)
    bound = 0.0 if assigned is None else min(assigned.solution.bound, cost(problem, chosen).total)
    return Found(chosen, cost(problem, chosen), max(bound, 0.0))


def rank_rows(problem: ExpertProblem) -> ExpertRows:
    """Rows of the programme with a place for each rank."""
    ones = (1,) * problem.ranks
    return _with_pairs(
        problem,
        ExpertRows(
            problem.tokens,
            (problem.slots,) * problem.ranks,
            ones,
            problem.passes * problem.dispatch,
            problem.passes * problem.combine,
            problem.compute[:, None] * problem.sizes[None, :],
            _least(problem),
        ),
        tuple(range(problem.ranks)),
    )


def node_rows(problem: ExpertProblem, links: tuple[LinkName, ...]) -> ExpertRows:
    """Rows of the programme with a place for each node, each at most the mean of rows that hold for its ranks."""
    numbers = tuple(map(len, problem.nodes))
    firsts = tuple(node[0] for node in problem.nodes)
    dispatch, combine = (problem.passes * _of_nodes(problem, _alike(of, links)) for of in (problem.dispatch, problem.combine))
    each = np.array([problem.compute[list(node)].min() / len(node) for node in problem.nodes])
    rows = ExpertRows(
        problem.tokens,
        tuple(problem.slots * number for number in numbers),
        numbers,
        dispatch,
        combine,
        each[:, None] * problem.sizes[None, :],
        _least(problem),
    )
    return _with_pairs(problem, rows, firsts)


def _with_pairs(problem: ExpertProblem, rows: ExpertRows, ranks: tuple[int, ...]) -> ExpertRows:
    """The rows with the pairs of the problem; `ranks`: a rank of each place."""
    if problem.pairs is None:
        return rows
    domain = tuple(problem.pairs.domain[rank] for rank in ranks)
    return replace(rows, pairs=problem.pairs.experts, saved=problem.pairs.saved, domain=domain)


def _least(problem: ExpertProblem) -> Seconds:
    """Seconds that the experts take at least: the hottest expert is on a rank, with the coldest ones in its other slots."""
    cold = np.sort(problem.load)[: problem.slots - 1].sum() if not problem.replicas else 0.0
    copies = min(problem.ranks, 1 + problem.replicas)
    return float(problem.compute.min() * (problem.load.max() / copies + cold))


def _alike(seconds: Numbers, links: tuple[LinkName, ...]) -> Numbers:
    """Mean rows of links that differ only in the device or NIC of one node."""
    sets: dict[LinkName, list[int]] = {}
    for index, link in enumerate(links):
        own = {"port": link[:3] + link[4:], "host": link[:3] + link[4:], "nic": link[:4] + link[5:]}.get(str(link[0]), link)
        sets.setdefault(own, []).append(index)
    return np.array([seconds[own].mean(axis=0) for own in sets.values()]).reshape(len(sets), *seconds.shape[1:])


def _of_nodes(problem: ExpertProblem, seconds: Numbers) -> Numbers:
    """The least of the ranks of each node."""
    return np.stack([seconds[:, :, list(node)].min(axis=2) for node in problem.nodes], axis=2)


def _on_ranks(problem: ExpertProblem, assigned: Assigned, exact: bool) -> ExpertPlacement:
    """The placement of the programme's solution; over nodes, copies are packed on the ranks of their node, hottest first."""
    held = [np.flatnonzero(column).tolist() for column in assigned.copies.T]
    if exact:
        placement = ExpertPlacement(tuple(map(tuple, held)))
        shares = np.array([assigned.shares[:, expert, rank] for expert, rank in placement.copies()])
        return replace(placement, shares=shares) if problem.replicas else placement
    ranks: list[tuple[int, ...]] = [()] * problem.ranks
    for place, node in enumerate(problem.nodes):
        for rank, experts in zip(node, _packed(problem, assigned, place), strict=True):
            ranks[rank] = experts
    return ExpertPlacement(tuple(ranks))


def _packed(problem: ExpertProblem, assigned: Assigned, place: int) -> list[tuple[int, ...]]:
    """Experts of each rank of a node: hottest copy first, on the rank with least tokens that can take it."""
    number = len(problem.nodes[place])
    copies = assigned.copies[:, place]
    whole = (problem.sizes[:, None] * problem.tokens * assigned.shares[:, :, place]).sum(0)
    each = np.divide(whole, copies, out=np.zeros_like(whole), where=copies > 0)
    ranks: list[list[int]] = [[] for _ in range(number)]
    loads = [0.0] * number
    order = sorted(np.flatnonzero(copies).tolist(), key=lambda expert: (copies[expert] < number, -each[expert]))
    for expert in order:
        for _ in range(copies[expert]):
            rank = rules.first_able(problem.slots, ranks, expert, sorted(range(number), key=lambda one: (loads[one], one)))
            ranks[rank].append(expert)
            loads[rank] += float(each[expert])
    return [tuple(sorted(held)) for held in ranks]


def _improved(problem: ExpertProblem, placement: ExpertPlacement, limit: TimeLimit) -> ExpertPlacement:
    """The placement after exchanges of an expert of the rank that takes longest with another one, each of which saves time."""
    best, seconds = placement, cost(problem, placement).total
    for _ in range(EXCHANGES):
        for other in _neighbours(problem, best):
            if limit.is_up():
                return best
            taken = cost(problem, other).total
            if taken < seconds * (1 - 1e-9):
                best, seconds = other, taken
                break
        else:
            return best
    return best


def _neighbours(problem: ExpertProblem, placement: ExpertPlacement) -> Iterator[ExpertPlacement]:
    """Placements with one exchange between the rank that takes longest and another one; copies take equal shares."""
    number = np.zeros(problem.experts)
    for expert, _ in placement.copies():
        number[expert] += 1
    loads = np.array([(problem.load[list(held)] / number[list(held)]).sum() for held in placement.ranks]) * problem.compute
    longest = int(loads.argmax())
    for own in placement.ranks[longest]:
        for rank in np.argsort(loads, kind="stable").tolist():
            for other in placement.ranks[rank]:
                if rank != longest and own not in placement.ranks[rank] and other not in placement.ranks[longest]:
                    ranks = list(placement.ranks)
                    ranks[longest] = _exchanged(ranks[longest], own, other)
                    ranks[rank] = _exchanged(ranks[rank], other, own)
                    yield ExpertPlacement(tuple(ranks))


def _exchanged(held: tuple[int, ...], out: int, into: int) -> tuple[int, ...]:
    return tuple(sorted((*(one for one in held if one != out), into)))


def _shared(
    problem: ExpertProblem, placements: list[ExpertPlacement], scale: Seconds, limit: TimeLimit
) -> Iterator[ExpertPlacement]:
    """The placements with the shares of copies that take least seconds."""
    rows = rank_rows(problem)
    for placement in placements:
        shares = best_shares(rows, list(placement.copies()), scale, TimeLimit(max(limit.seconds_left, 0.1)))
        if shares is not None:
            yield replace(placement, shares=shares)
