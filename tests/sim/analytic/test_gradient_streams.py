"""Gathers of weights and reductions of gradients beside a pipeline: steps computed by hand."""

from __future__ import annotations

from tests.sim.analytic.candidate_steps import step


def test_buckets_are_gathered_before_forwards_and_reduced_after_backwards() -> None:
    """Buckets of 2 s: forwards end at 4, 6, 8; backwards at 10, 12, 14; reductions of 1 s at 11, 13, 15; optimizer 0.5 s."""
    sync = {"gather": 6.0, "reduce": 3.0, "parts": 3.0, "updated": 0.5}
    assert step("1f1b", 1, 1, forward=6.0, inputs=6.0, **sync) == 15.5


def test_gathers_and_reductions_slow_the_compute_that_they_overlap() -> None:
    """Half speed until 6: forwards end at 6, 8, 10; beside reductions of 1 s backwards end at 12, 14.5, 17; the last at 18."""
    sync = {"gather": 6.0, "reduce": 3.0, "parts": 3.0, "gather_slows": 1.0, "reduce_slows": 1.0}
    busy = {"forward_compute": 6.0, "inputs_compute": 6.0}
    assert step("1f1b", 1, 1, forward=6.0, inputs=6.0, **sync, **busy) == 18.0


def test_zero_2_reduces_after_every_backward() -> None:
    """F0 0-2, B0 2-4 4-6, F1 6-8, B1 8-10 10-12; reductions of 3 s 4-7-10 and 10-13-16; 0.5 s of optimizer."""
    sync = {"reduce": 6.0, "parts": 2.0, "updated": 0.5}
    assert step("1f1b", 1, 2, zero_stage=2, forward=2.0, inputs=4.0, **sync) == 16.5


def test_zero_2_gathers_before_the_first_forward_only() -> None:
    """Gathers of 3 s 0-3-6; F0 3-4, 6-7, B0 7-9 9-11, F1 11-13, B1 13-15 15-17; reductions of 1 s, the last one 17-18."""
    sync = {"gather": 6.0, "reduce": 2.0, "parts": 2.0}
    assert step("1f1b", 1, 2, zero_stage=2, forward=2.0, inputs=4.0, **sync) == 18.0


def test_reductions_of_a_microbatch_slow_the_next_one() -> None:
    """Two microbatches at half speed beside reductions of 3 s.

    F0 0-2, B0 2-4 and 4-7.5 (slowed till 7), reductions 4-7 and 7.5-10.5, F1 7.5-11 (slowed till 10.5), B1 11-13 and 13-16.5
    (slowed till 16), reductions 13-16 and 16.5-19.5.
    """
    sync = {"reduce": 6.0, "parts": 2.0, "reduce_slows": 1.0, "updated": 0.5}
    busy = {"forward_compute": 2.0, "inputs_compute": 4.0}
    assert step("1f1b", 1, 2, zero_stage=2, forward=2.0, inputs=4.0, **sync, **busy) == 20.0


def test_zb_h1_reduces_weight_gradients_after_every_w() -> None:
    """F0 0-1, B0 1-2, W0 2-3, F1 3-4, B1 4-5, W1 5-6; reductions of 4 s 3-7 and 7-11."""
    assert step("zb-h1", 1, 2, zero_stage=2, forward=1.0, inputs=1.0, weight=1.0, reduce=4.0) == 11.0


def test_zero_3_waits_for_the_reductions_of_the_pass_before() -> None:
    """F 0-4, B 4-14, its reductions until 16; F 16-20, B 20-30, its reductions until 32."""
    seconds = {"forward": 4.0, "inputs": 10.0, "stream": 12.0}
    assert step("1f1b", 1, 1, zero_stage=3, **seconds) == 16.0
    assert step("1f1b", 1, 2, zero_stage=3, **seconds) == 32.0


def test_a_tied_embedding_is_summed_after_both_ends_have_reduced() -> None:
    """Pipeline ranks end at 9 and 8; 9 + 1 reduced, + 0.25 summed, + 2 for the slower optimizer."""
    own = {"forward": 1.0, "inputs": 2.0, "reduced": 1.0, "updated": (0.5, 2.0)}
    assert step("1f1b", 2, 2, **own, tied=0.25) == 12.25
    assert step("1f1b", 2, 2, **own) == 10.5
