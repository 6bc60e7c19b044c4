"""A pass through layers whose weights are sharded (ZeRO 3): gathers, parts and reductions, computed by hand."""

from __future__ import annotations

from sim.kernels import shards
from sim.kernels.shards import Bucket


def test_zero_3_gathers_layers_two_ahead() -> None:
    """Gathers of 1 s at 0-1-2-3, the third since the first part begins at 1; parts of 1 s at 1-2, 2-3, 3-4."""
    assert shards.sharded_pass(3, 3.0, 3.0, Bucket(1.0, 0.0), None) == (4.0, 3.0)


def test_zero_3_reduces_between_its_gathers() -> None:
    """Four parts of 1 s: started are gathers 0, 1, 2 (by part 0), reduction 0, gather 3 (by part 1), reductions 1, 2, 3.

    Gathers of 2 s 0-2-4-6, part 0 2-3, reduction 0 of 1 s 6-7, part 1 4-5, gather 3 7-9, reduction 1 9-10, part 2 6-7,
    reduction 2 10-11, part 3 9-10, reduction 3 11-12.
    """
    assert shards.sharded_pass(4, 4.0, 4.0, Bucket(2.0, 0.0), Bucket(1.0, 0.0)) == (10.0, 12.0)


def test_zero_3_is_slowed_by_overlapping_gathers_and_reductions() -> None:
    """Two parts of 2 s of compute and 1 s that is never slowed: half speed beside gathers, two thirds beside reductions.

    Gathers 0-2-4; part 0 2-5 (half of it until 4) and 5-6; reduction 0 6-9; part 1 6-9 and 9-10; reduction 1 10-13.
    """
    assert shards.sharded_pass(2, 4.0, 6.0, Bucket(2.0, 1.0), Bucket(3.0, 0.5)) == (10.0, 13.0)
