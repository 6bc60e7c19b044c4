"""The benchmark of losses trains all strategies on the same tokens, and its least loss is that of the table."""

from __future__ import annotations

import math

import pytest

from sim import sync as strategies
from sim.sync import Sync

pytest.importorskip("torch")

from benchmarks import sync_losses


def test_exact_training_does_not_depend_on_the_number_of_islands() -> None:
    (two, least), (four, _) = (sync_losses.train(Sync("every-step"), islands, 4, 0) for islands in (2, 4))
    assert two == pytest.approx(four, abs=1e-4)
    assert least < two < math.log(sync_losses.MODEL.vocab) + 0.2


def test_batches_are_equal_except_those_of_adaptive_sgd() -> None:
    assert sync_losses.batches(Sync("diloco"), 4) == (4, 4, 4, 4)
    assert sync_losses.batches(Sync("adaptive-sgd"), 2) == (12, 4)
    assert sync_losses.batches(Sync("adaptive-sgd"), 4) == (6, 2, 4, 4)


def test_the_learning_rate_grows_and_falls_to_a_tenth() -> None:
    assert [sync_losses.schedule(step, 500) for step in (0, 24, 250, 500)] == pytest.approx([0.02, 0.5, 0.55, 0.1])


def test_every_sync_strategy_is_measured() -> None:
    assert {sync.strategy for _, sync in sync_losses.STRATEGIES} == set(strategies.names())
