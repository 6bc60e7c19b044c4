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
        assert (least.begin, least.own, least.both, least.tail) == tuple(min(row[i] for row in larger) for i in range(4))
        assert (least.busy, least.lane, least.weight) == (layers, 2 * layers, 3 * layers)
        assert (least.forward, least.inputs, least.trip) == (4 * layers, 4 * layers, 4 * layers)
        assert sizes.rows(np.array([layers, len(rows)])).tolist() == [[*exact], [*sizes.exact(len(rows))]]
    assert sorted(computed) == list(range(1, len(rows) + 1)), "each size is computed once"


def test_the_most_layers_within_some_seconds_are_those_of_the_envelope():
    """Three layers have gathers and reductions that are hidden better than those of two: both may take 5 s."""
    both = [3.0, 6.0, 5.0, 7.0]
    sizes = StageSizes(lambda k: StageSeconds(0.0, 0.0, both[k - 1], *[0.0] * 7), 4)
    assert [sizes.most_within(seconds) for seconds in (2.9, 3.0, 4.9, 5.0, 6.9, 7.0, 9.0)] == [0, 1, 1, 3, 3, 4, 4]
