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
from planner.experts.problem import ExpertPlacement, ExpertProblem, Numbers, PlacementCost, Ranks, cost
from planner.models.expert_programme import Assigned, ExpertRows, assign, best_shares
from planner.time_limit import TimeLimit
from sim.network.paths import LinkName
from sim.units import Seconds

EXACT = 200
"""Most experts x ranks of a problem that is solved over ranks (a guess). More take the solver minutes."""
EXCHANGES = 400
"""Most exchanges of two experts that improve one placement (a guess)."""
PAIRS = 512
"""Most pairs of experts in a programme (a guess): more take the solver minutes. Costs count all pairs. With more pairs the
bound of the programme does not hold, since it leaves out what the others save."""
JOINT = 4
"""Most blocks of ep groups in one programme (a guess): the slowest ones under the best rule. The bound holds with fewer,
too."""
LESS = 1 - 1e-9
"""Share of the seconds below which an exchange saves time, beyond rounding."""
RULES = (rules.contiguous, rules.round_robin, rules.balanced, rules.per_node)
PROVED = 1e-4
"""Gap up to which a placement is called optimal: that of the solver."""


@dataclass(frozen=True, slots=True)
class Found:
    """Placements of blocks, which differ in shares only, their costs, and a bound: no placement, with any shares, takes fewer
    seconds of the slowest block (0 where nothing is known)."""

    placements: tuple[ExpertPlacement, ...]
    costs: tuple[PlacementCost, ...]
    bound: Seconds

    @property
    def total(self) -> Seconds:
        """Seconds of the slowest block."""
        return max(one.total for one in self.costs)

    @property
    def gap(self) -> float:
        """1 - bound / seconds."""
        return max(0.0, 1.0 - self.bound / self.total) if self.total else 0.0

    @property
    def is_optimal(self) -> bool:
        """Whether the placement is proved to be optimal."""
        return self.gap <= PROVED


def find(blocks: tuple[ExpertProblem, ...], links: tuple[tuple[LinkName, ...], ...], limit: TimeLimit) -> Found:
    """The best placement found for blocks of ep groups that share it: of the programme, or of a rule where that is better, each
    improved by exchanges. `links`: names of the links of each block."""
    starts = [rule(problem).ranks for rule in RULES for problem in blocks[:JOINT]]
    best = min(starts, key=lambda ranks: _slowest(blocks, ranks))
    scale = _slowest(blocks, best)
    if not scale:
        return _found(blocks, [_equal(blocks, best)], 0.0)
    hardest = sorted(range(len(blocks)), key=lambda index: -cost(blocks[index], ExpertPlacement(best)).total)[:JOINT]
    joint = [index for index in hardest if blocks[index].nodes == blocks[hardest[0]].nodes]
    exact = blocks[0].experts * blocks[0].ranks <= EXACT
    rows = tuple(rank_rows(blocks[index]) if exact else node_rows(blocks[index], links[index]) for index in joint)
    assigned = assign(rows, scale, TimeLimit(max(limit.seconds_left, 0.1)))
    candidates = [_equal(blocks, best)]
    if assigned is not None:
        candidates.append(_on_ranks(blocks, joint, assigned, exact))
    improved = [_equal(blocks, _improved(blocks, one[0].ranks, limit)) for one in candidates]
    if blocks[0].replicas:
        improved += [_shared(blocks, one[0].ranks, scale, limit) for one in (*candidates, *improved)]
    bound = max(map(_least, blocks))
    if assigned is not None and all(one.pairs is None or len(one.pairs.experts) <= PAIRS for one in blocks):
        bound = max(bound, assigned.solution.bound)
    return _found(blocks, [*candidates, *improved], bound)


def _found(blocks: tuple[ExpertProblem, ...], candidates: list[tuple[ExpertPlacement, ...]], bound: Seconds) -> Found:
    costs = [tuple(map(cost, blocks, placements)) for placements in candidates]
    best = min(range(len(costs)), key=lambda index: max(one.total for one in costs[index]))
    return Found(candidates[best], costs[best], max(0.0, min(bound, max(one.total for one in costs[best]))))


def _slowest(blocks: tuple[ExpertProblem, ...], ranks: Ranks) -> Seconds:
    """Seconds of the slowest block where copies take equal shares."""
    return max(cost(problem, ExpertPlacement(ranks)).total for problem in blocks)


def _equal(blocks: tuple[ExpertProblem, ...], ranks: Ranks) -> tuple[ExpertPlacement, ...]:
    return (ExpertPlacement(ranks),) * len(blocks)


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
    """The rows with the pairs of the problem that save most, `PAIRS` at most; `ranks`: a rank of each place."""
    if problem.pairs is None:
        return rows
    domain = tuple(problem.pairs.domain[rank] for rank in ranks)
    most = np.sort(np.argsort(-problem.pairs.saved, kind="stable")[:PAIRS])
    pairs = tuple(problem.pairs.experts[index] for index in most.tolist())
    return replace(rows, pairs=pairs, saved=problem.pairs.saved[most], domain=domain)


def _least(problem: ExpertProblem) -> Seconds:
    """Seconds that the experts take at least: the hottest expert is on a rank, with the coldest ones in its other slots; and
    ranks that all take equally long compute all tokens."""
    cold = np.sort(problem.load)[: problem.slots - 1].sum() if not problem.replicas else 0.0
    copies = min(problem.ranks, 1 + problem.replicas)
    fastest = float(problem.compute.min())
    even = problem.ranks / float((1.0 / problem.compute).sum()) if fastest else 0.0
    return max(fastest * float(problem.load.max() / copies + cold), even)


def _alike(seconds: Numbers, links: tuple[LinkName, ...]) -> Numbers:
    """Mean rows of links that differ only in the device or NIC of one node."""
    sets: dict[LinkName, list[int]] = {}
    for index, link in enumerate(links):
        own = link[:4] + link[5:] if link[0] == "nic" else link[:3] + link[4:] if link[0] in ("port", "host", "send") else link
        sets.setdefault(own, []).append(index)
    return np.array([seconds[own].mean(axis=0) for own in sets.values()]).reshape(len(sets), *seconds.shape[1:])


def _of_nodes(problem: ExpertProblem, seconds: Numbers) -> Numbers:
    """The least of the ranks of each node."""
    return np.stack([seconds[:, :, list(node)].min(axis=2) for node in problem.nodes], axis=2)


def _on_ranks(
    blocks: tuple[ExpertProblem, ...], joint: list[int], assigned: Assigned, exact: bool
) -> tuple[ExpertPlacement, ...]:
    """The placement of the programme's solution; over nodes, copies are packed on the ranks of their node, hottest first.

    `joint`: blocks of the programme; copies take equal shares in the others, and after packing."""
    first = blocks[joint[0]]
    ranks: list[tuple[int, ...]] = [()] * first.ranks
    if exact:
        ranks = [tuple(np.flatnonzero(column).tolist()) for column in assigned.copies.T]
    else:
        for place, node in enumerate(first.nodes):
            packed = _packed([blocks[index] for index in joint], assigned, place)
            for rank, experts in zip(node, packed, strict=True):
                ranks[rank] = experts
    placements = list(_equal(blocks, tuple(ranks)))
    if exact and first.replicas:
        for index, shares in zip(joint, assigned.shares, strict=True):
            own = [shares[:, expert, rank] for expert, rank in placements[index].copies()]
            placements[index] = ExpertPlacement(tuple(ranks), np.array(own))
    return tuple(placements)


def _packed(blocks: list[ExpertProblem], assigned: Assigned, place: int) -> list[tuple[int, ...]]:
    """Experts of each rank of a node: hottest copy first, on the rank with least tokens that can take it."""
    number, copies = len(blocks[0].nodes[place]), assigned.copies[:, place]
    whole = np.zeros(len(copies))
    for problem, shares in zip(blocks, assigned.shares, strict=True):
        whole += (problem.sizes[:, None] * problem.tokens * shares[:, :, place]).sum(0)
    each = np.divide(whole, copies, out=np.zeros_like(whole), where=copies > 0)
    ranks: list[list[int]] = [[] for _ in range(number)]
    loads = [0.0] * number
    for expert in sorted(np.flatnonzero(copies).tolist(), key=lambda one: (copies[one] < number, -each[one])):
        for _ in range(copies[expert]):
            order = sorted(range(number), key=lambda one: (loads[one], one))
            rank = rules.first_able(blocks[0].slots, ranks, expert, order)
            ranks[rank].append(expert)
            loads[rank] += float(each[expert])
    return [tuple(sorted(held)) for held in ranks]


def _improved(blocks: tuple[ExpertProblem, ...], ranks: Ranks, limit: TimeLimit) -> Ranks:
    """The placement after exchanges of an expert of the rank that takes longest with another one, each of which saves time."""
    best, seconds = ranks, _slowest(blocks, ranks)
    for _ in range(EXCHANGES):
        slowest = max(blocks, key=lambda problem: cost(problem, ExpertPlacement(best)).total)
        for other in _neighbours(slowest, best):
            if limit.is_up():
                return best
            if (
                cost(slowest, ExpertPlacement(other)).total < seconds * LESS
                and (taken := _slowest(blocks, other)) < seconds * LESS
            ):
                best, seconds = other, taken
                break
        else:
            return best
    return best


def _neighbours(problem: ExpertProblem, ranks: Ranks) -> Iterator[Ranks]:
    """Placements with one exchange between the rank that takes longest and another one."""
    number = np.zeros(problem.experts)
    for held in ranks:
        number[list(held)] += 1
    loads = np.array([(problem.load[list(held)] / number[list(held)]).sum() for held in ranks]) * problem.compute
    longest = int(loads.argmax())
    for own in ranks[longest]:
        for rank in np.argsort(loads, kind="stable").tolist():
            for other in ranks[rank]:
                if rank != longest and own not in ranks[rank] and other not in ranks[longest]:
                    exchanged = list(ranks)
                    exchanged[longest] = _exchanged(ranks[longest], own, other)
                    exchanged[rank] = _exchanged(ranks[rank], other, own)
                    yield tuple(exchanged)


def _exchanged(held: tuple[int, ...], out: int, into: int) -> tuple[int, ...]:
    return tuple(sorted((*(one for one in held if one != out), into)))


def _shared(blocks: tuple[ExpertProblem, ...], ranks: Ranks, scale: Seconds, limit: TimeLimit) -> tuple[ExpertPlacement, ...]:
    """The placement with the shares of copies that take least seconds in each block; equal shares where none were found."""
    placement = ExpertPlacement(ranks)
    copies = list(placement.copies())
    made = (best_shares(rank_rows(one), copies, scale, TimeLimit(max(limit.seconds_left, 0.1))) for one in blocks)
    return tuple(ExpertPlacement(ranks, shares) for shares in made)
