"""Placements of experts by simple rules: what frameworks do without the topology, and starting points of the search."""

from __future__ import annotations

import heapq

import numpy as np

from planner.experts.problem import ExpertPlacement, ExpertProblem


def contiguous(problem: ExpertProblem) -> ExpertPlacement:
    """Expert block r on rank r (Megatron-Core, and vLLM's placement strategy "linear"); replicas repeat the experts in order
    (SGLang's "trivial" location)."""
    slots, experts = problem.slots, problem.experts
    return _placed([[(rank * slots + slot) % experts for slot in range(slots)] for rank in range(problem.ranks)])


def round_robin(problem: ExpertProblem) -> ExpertPlacement:
    """Expert e on rank e mod ep (vLLM's placement strategy "round_robin"); the replicas of each round are one rank further."""
    ranks: list[list[int]] = [[] for _ in range(problem.ranks)]
    for copy in range(problem.slots * problem.ranks):
        turn, expert = divmod(copy, problem.experts)
        order = [(expert + turn + further) % problem.ranks for further in range(problem.ranks)]
        ranks[first_able(problem.slots, ranks, expert, order)].append(expert)
    return _placed(ranks)


def replicated(problem: ExpertProblem) -> list[int]:
    """Copies of each expert: every replica goes to the expert whose copies have most tokens each (DeepSeek's EPLB,
    deepseek-ai/EPLB ff2cba52, eplb.py, replicate_experts), of which each rank holds one at most."""
    copies = [1] * problem.experts
    heap = [(-load, expert) for expert, load in enumerate(problem.load.tolist())]
    heapq.heapify(heap)
    for _ in range(problem.replicas):
        expert = heap[0][1]
        copies[expert] += 1
        if copies[expert] < problem.ranks:
            heapq.heapreplace(heap, (-float(problem.load[expert]) / copies[expert], expert))
        else:
            heapq.heappop(heap)
    return copies


def balanced(problem: ExpertProblem) -> ExpertPlacement:
    """Hottest copy first, on the rank with least tokens that has a free slot (EPLB's balanced_packing), whatever the links."""
    return packed(problem, [list(range(problem.ranks)) for _ in range(problem.experts)])


def per_node(problem: ExpertProblem) -> ExpertPlacement:
    """Hottest expert first, on the node whose ranks send it most tokens and that has room; there on the rank with least
    tokens."""
    room = [len(node) * problem.slots for node in problem.nodes]
    wanted = problem.sizes[:, None] * problem.tokens
    homes: list[list[int]] = [[] for _ in range(problem.experts)]
    copies = replicated(problem)
    for expert in np.argsort(-problem.load, kind="stable").tolist():
        order = np.argsort(-wanted[:, expert], kind="stable").tolist()
        left = copies[expert]
        for node in order:
            taken = min(left, room[node], len(problem.nodes[node]))
            room[node] -= taken
            left -= taken
            homes[expert] += problem.nodes[node] if taken else ()
    return packed(problem, homes)


def packed(problem: ExpertProblem, homes: list[list[int]], copies: list[int] | None = None) -> ExpertPlacement:
    """Copies, hottest first, each on the rank with least tokens among `homes[expert]` that has a free slot, or among all ranks
    where none of these has one. `copies`: of each expert; default: `replicated`."""
    copies = copies or replicated(problem)
    each = problem.load / np.array(copies)
    ranks: list[list[int]] = [[] for _ in range(problem.ranks)]
    loads = [0.0] * problem.ranks
    for expert in np.argsort(-each, kind="stable").tolist():
        for _ in range(copies[expert]):
            rank = _freest(problem, ranks, loads, expert, homes[expert])
            ranks[rank].append(expert)
            loads[rank] += float(each[expert])
    return _placed(ranks)


def _freest(problem: ExpertProblem, ranks: list[list[int]], loads: list[float], expert: int, homes: list[int]) -> int:
    """The rank with least tokens that can take a copy, of `homes` where one can; of equal ranks the one on the node with least,
    so that the hottest experts are not all on the first node."""
    of_node = [sum(loads[rank] for rank in node) for node in problem.nodes]
    every = sorted(range(problem.ranks), key=lambda rank: (loads[rank], of_node[problem.node_of[rank]], rank))
    return first_able(problem.slots, ranks, expert, [*(rank for rank in every if rank in homes), *every])


def first_able(slots: int, ranks: list[list[int]], expert: int, order: list[int]) -> int:
    """The first rank of `order` with a free slot and without the expert; where each rank with a free slot has it, an expert of
    another rank moves there to make room."""
    for rank in order:
        if len(ranks[rank]) < slots and expert not in ranks[rank]:
            return rank
    free = next(rank for rank in range(len(ranks)) if len(ranks[rank]) < slots)
    for rank in order:
        movable = [other for other in ranks[rank] if other not in ranks[free]]
        if expert not in ranks[rank] and movable:
            ranks[rank].remove(movable[0])
            ranks[free].append(movable[0])
            return rank
    raise AssertionError(f"no rank can take another copy of expert {expert}")


def _placed(ranks: list[list[int]]) -> ExpertPlacement:
    return ExpertPlacement(tuple(tuple(sorted(held)) for held in ranks))
