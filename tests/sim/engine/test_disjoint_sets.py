"""Disjoint sets: members of united sets have one root, and the partition is that of the connected components of a graph."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from sim.engine.disjoint_sets import DisjointSets


def test_united_sets_have_one_root():
    sets = DisjointSets()
    sets.join(1, 2, 3)
    sets.join(5, 4)
    assert sets.root(1) == sets.root(2) == sets.root(3)
    assert sets.root(4) == sets.root(5) != sets.root(1)
    assert sets.root(6) == 6, "never joined"
    sets.join(3, 4)
    assert len({sets.root(member) for member in range(1, 6)}) == 1


@pytest.mark.parametrize("seed", range(20))
def test_sets_are_the_connected_components(seed):
    draw = random.Random(seed)
    edges = [(draw.randrange(60), draw.randrange(60)) for _ in range(draw.randrange(80))]
    sets, graph = DisjointSets(), nx.Graph(edges)
    graph.add_nodes_from(range(60))
    for a, b in edges:
        sets.join(a, b)
    parts: dict[int, set[int]] = {}
    for member in range(60):
        parts.setdefault(sets.root(member), set()).add(member)
    assert sorted(map(sorted, parts.values())) == sorted(map(sorted, nx.connected_components(graph)))
