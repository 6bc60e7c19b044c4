"""Small placement problems: two nodes, drawn or by hand, and every placement of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from planner.experts.problem import ExpertPlacement, ExpertProblem, Numbers, Pairs


def problem(tokens: object, slots: int, trunk: float = 1.0, compute: object = 0.0, **facts: object) -> ExpertProblem:
    """Two nodes (clusters "a" and "b") with half of the ranks each, joined by one link that takes `trunk` seconds for all
    choices of a rank, in each direction; ranks compute the mean of tokens in `compute` seconds. One pass each way."""
    shares = np.array(tokens, dtype=float)
    shares /= shares.sum(axis=1, keepdims=True)
    replicas = int(facts.pop("replicas", 0))  # type: ignore[call-overload]
    ranks = (shares.shape[1] + replicas) // slots
    half = ranks // 2
    there = np.zeros((2, 2, ranks))  # links a -> b and b -> a
    there[0, 0, half:] = there[1, 1, :half] = trunk * half
    nodes = tuple(range(half)), tuple(range(half, ranks))
    seconds = np.broadcast_to(np.array(compute, dtype=float), (ranks,)).copy()
    values = {"clusters": ("a", "b"), "passes": 1.0, "sent": 100.0} | facts
    return ExpertProblem(slots, nodes, tokens=shares, dispatch=there, combine=there[::-1], compute=seconds, **values)


def drawn(seed: int, replicas: bool) -> ExpertProblem:
    """2 to 4 ranks, 4 to 6 experts, unequal sources, links and devices; with 1 to 3 replicas, or none."""
    random = np.random.default_rng(seed)
    ranks, experts = int(random.choice([2, 3, 4])), int(random.integers(4, 7))
    further = int(random.integers(1, 3)) if replicas else 0
    if replicas:
        further += -(experts + further) % ranks
    else:
        experts += -experts % ranks if experts % ranks != 2 else -2
    cut = int(random.integers(1, ranks))
    nodes = tuple(range(cut)), tuple(range(cut, ranks))
    tokens = random.random((2, experts)) ** 3
    dispatch = random.random((4, 2, ranks)) * (random.random((4, 1, 1)) > 0.3)
    combine = random.random((4, 2, ranks)) if random.random() < 0.5 else dispatch
    return ExpertProblem(
        (experts + further) // ranks, nodes, ("a", "b"), tokens / tokens.sum(axis=1, keepdims=True), dispatch, combine, 2.0,
        0.5 * random.random(ranks), 1.0,
    )  # fmt: skip


def with_pairs(seed: int) -> ExpertProblem:
    """Four experts on four ranks of two nodes, of which tokens choose two; pairs are drawn."""
    random = np.random.default_rng(seed)
    pairs = tuple(itertools.combinations(range(4), 2))
    number = random.integers(0, 50, len(pairs)).astype(float) + 1
    tokens = np.array([sum(n for pair, n in zip(pairs, number, strict=True) if e in pair) for e in range(4)])
    saved = number * 2 / 2 / tokens.sum()
    return problem([tokens, tokens], 1, pairs=Pairs(pairs, saved, (0, 0, 1, 1)))


def every(given: ExpertProblem) -> Iterator[ExpertPlacement]:
    """Every placement with all slots filled, no rank with two copies of one expert."""
    held = itertools.combinations(range(given.experts), given.slots)
    for ranks in itertools.product(tuple(held), repeat=given.ranks):
        if len(set(itertools.chain.from_iterable(ranks))) == given.experts:
            yield ExpertPlacement(ranks)


def loads(given: ExpertProblem, placement: ExpertPlacement) -> Numbers:
    """Tokens of each rank where copies take equal shares, the mean being 1."""
    copies = list(placement.copies())
    number = [sum(expert == one for one, _ in copies) for expert in range(given.experts)]
    found = np.zeros(given.ranks)
    for expert, rank in copies:
        found[rank] += given.load[expert] / number[expert]
    return found
