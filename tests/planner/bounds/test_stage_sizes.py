"""The monotone envelope of the seconds of stages by their number of layers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.bounds.stage_sizes import StageSeconds, StageSizes

seconds = st.floats(0.0, 9.0)


@given(st.lists(st.tuples(seconds, seconds, seconds, seconds), min_size=1, max_size=8), st.data())
def test_the_envelope_is_the_least_of_a_size_and_all_larger_ones(rows, data):
    computed = []

    def size(layers: int) -> StageSeconds:
        computed.append(layers)
        begin, own, both, tail = rows[layers - 1]
        return StageSeconds(begin, own, both, float(layers), 2.0 * layers, 3.0 * layers, tail, *[4.0 * layers] * 3)

    sizes = StageSizes(size, len(rows))
    for layers in data.draw(st.permutations(range(1, len(rows) + 1))):
        exact, least = sizes.exact(layers), sizes.envelope(layers)
        assert (exact.begin, exact.own, exact.both, exact.tail) == rows[layers - 1]
        larger = rows[layers - 1 :]
        assert (least.begin, least.own, least.both) == tuple(min(row[i] for row in larger) for i in range(3))
        assert (least.busy, least.lane, least.weight, least.tail) == (layers, 2 * layers, 3 * layers, exact.tail)
        assert (least.forward, least.inputs, least.trip) == (4 * layers, 4 * layers, 4 * layers)
        assert sizes.rows(np.array([layers, len(rows)])).tolist() == [[*exact], [*sizes.exact(len(rows))]]
    assert sorted(computed) == list(range(1, len(rows) + 1)), "each size is computed once"
