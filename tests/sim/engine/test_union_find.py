"""Sets that grow together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sim.engine.union_find import UnionFind


@given(st.lists(st.lists(st.integers(-8, 8), min_size=1, max_size=4), max_size=12))
def test_numbers_are_together_where_a_chain_of_unions_joins_them(unions: list[list[int]]) -> None:
    found, sets = UnionFind(range(9)), [{number} for number in range(-8, 9)]
    for together in unions:
        found.union(*together)
        met = [one for one in sets if one & set(together)]
        sets = [one for one in sets if one not in met] + [set().union(*met)]
    roots = [{found[number] for number in one} for one in sets]
    assert all(len(of_set) == 1 for of_set in roots)
    assert len(set().union(*roots)) == len(sets)
