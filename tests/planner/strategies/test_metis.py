"""The strategy metis: the data balancer, the layer balancer, and the memory of groups."""

from __future__ import annotations

import pytest

from planner.request import Wishes
from planner.strategies.metis import balance_layers, batch_shares, relieve
from tests.planner.builders import plan_of
from tests.planner.strategies.fleets import on


@pytest.mark.parametrize(
    ("speeds", "total", "shares"),
    [
        ([1, 1], 8, (4, 4)),
        ([2, 1], 9, (6, 3)),
        ([3, 2], 8, (5, 3)),  # 4.8 and 3.2: the larger rest gets the one that is over
        ([5, 5, 2], 10, (4, 4, 2)),  # 4.17, 4.17, 1.67
        ([1, 1, 1], 8, (3, 3, 2)),  # equals: the first
        ([9, 1], 4, (4, 0)),
    ],
)
def test_metis_shares_the_batch_by_speed(speeds, total, shares):
    """The data balancer: proportional to speed, by largest remainder."""
    assert batch_shares(speeds, total) == shares


@pytest.mark.parametrize(
    ("capacities", "layers", "ends", "split"),
    [
        ([1, 1], 12, (0, 0), (6, 6)),
        ([2, 1], 12, (0, 0), (8, 4)),
        ([3, 1], 10, (0, 0), (8, 2)),  # the border falls at 7.5: most of layer 7 is not after it
        ([1, 1, 1], 12, (0, 3), (5, 5, 2)),  # logits as heavy as three layers
        ([1, 1], 12, (2, 0), (5, 7)),
        ([20, 1, 1], 6, (0, 0), (4, 1, 1)),  # one at least
        ([2, 3, 2], 16, (0, 0), (4, 7, 5)),  # 4.57, 6.86, 4.57: filled 5, 6, 5; then the second, short of 0.86, takes one
    ],
)
def test_metis_balances_layers_by_capacity(capacities, layers, ends, split):
    assert balance_layers(capacities, layers, *ends) == split


def test_metis_moves_capacity_from_groups_short_of_memory_to_those_with_room():
    """0.9 x what fits is kept, and the rest goes to where there is room, by capacity."""
    assert relieve([0.5, 0.5], [0.5, 2.0]) == pytest.approx([0.225, 0.775])
    assert relieve([0.5, 0.25, 0.25], [0.8, 4.0, 4.0]) == pytest.approx([0.36, 0.32, 0.32])
    assert relieve([0.4, 0.4, 0.2], [0.5, 1.1, 4.0]) == pytest.approx([0.18, 0.44, 0.38])  # the second has room for 0.04
    assert relieve([0.5, 0.5], [0.5, 1.2]) is None


def test_metis_gives_fast_replicas_of_a_mixed_group_more_of_the_batch():
    """One group over both types: replicas on devices of 1 and 0.4 PFLOP/s, 24 samples."""
    config = plan_of(on("two speeds", Wishes(tp=1, pp=1, dp=8, microbatch_size=1)), "metis").config
    fast, slow = config.num_microbatches[:4], config.num_microbatches[4:]
    assert sum(config.num_microbatches) == 24
    assert min(fast) > max(slow)


def test_metis_takes_the_least_tensor_parallelism_that_fits():
    config = plan_of(on("alike", Wishes(pp=1, microbatch_size=1)), "metis").config
    assert (config.tp, config.dp) == (1, 8)
