"""What collectives take of the memory: by hand, and laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.network.memory_traffic import traffic_share
from tests import builders


def test_a_gather_that_takes_a_quarter_of_the_memory_slows_compute_by_a_third() -> None:
    """2 GB/s of payload move 6 GB/s, of 24 GB/s at efficiency 1 a quarter: what computes has three quarters left."""
    chip = builders.device(memory_bandwidth=24e9)
    assert traffic_share("all_gather", 0.5e-9, [chip]) == pytest.approx(1 / 3, rel=1e-12)
    assert traffic_share("reduce_scatter", 0.5e-9, [chip]) == pytest.approx(1 / 3, rel=1e-12)


def test_an_all_reduce_moves_as_much_as_a_scatter_and_a_gather() -> None:
    chip = builders.device(memory_bandwidth=48e9)
    assert traffic_share("all_reduce", 0.5e-9, [chip]) == pytest.approx(1 / 3, rel=1e-12)


def test_rings_of_a_dgx_h100_between_nodes_take_two_fifths_of_its_memory() -> None:
    """Eight NICs of 50 GB/s carry 400 GB/s of payload past each device, 1.2 TB/s of the 2.85 that passes reach of 3.35 TB/s."""
    chip = builders.device(memory_bandwidth=3.35e12, elementwise_efficiency=0.85)
    share = traffic_share("all_gather", 1 / 400e9, [chip])
    assert share / (1 + share) == pytest.approx(0.4214, abs=1e-4)


def test_the_slowest_memory_of_a_group_decides() -> None:
    slow, fast = builders.device("slow", memory_bandwidth=24e9), builders.device("fast", memory_bandwidth=1e12)
    assert traffic_share("all_gather", 0.5e-9, [fast, slow]) == traffic_share("all_gather", 0.5e-9, [slow])


@given(st.floats(1e-15, 1e-6), st.floats(1e8, 1e14))
def test_memory_serves_compute_at_least_half_of_the_time(per_byte: float, rate: float) -> None:
    assert 0.0 < traffic_share("all_reduce", per_byte, [builders.device(memory_bandwidth=rate)]) <= 1.0


def test_a_collective_that_takes_no_time_takes_no_memory() -> None:
    assert traffic_share("all_gather", 0.0, [builders.device()]) == 0.0
