"""What a token is worth: published gaps of loss, and where nothing is published."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.islands.token_worth import EXACT, loss_gap, token_worth, worth_of
from sim.sync import Sync
from tests.sim.islands.builders import islands_plan, machines


@pytest.mark.parametrize(
    ("parameters", "islands", "steps", "gap"),
    [
        (35e6, 8, 30, 0.039),
        (1.3e9, 2, 30, 0.002),
        (1.3e9, 4, 10, 0.005),
        (2.4e9, 4, 30, 0.003),
        (10e9, 2, 30, -0.002),
        (100e9, 2, 30, -0.002),
        (1.3e9, 2, 100, 0.002 + 0.0058 * 1.2039728),
        (1.3e9, 14, 30, 0.013),
    ],
)
def test_published_gaps(parameters, islands, steps, gap):
    assert loss_gap(parameters, islands, steps) == pytest.approx(gap, rel=1e-6)


def test_a_gap_in_loss_becomes_tokens():
    """At 1.3e9 parameters and 26e9 tokens the law's loss is 1.69 + 0.3239 + 0.4979 = 2.512; 0.5 % of it is 2.52 % of 0.4979,
    and 1.0252 to the power of -1 / 0.28 is 0.915."""
    found = worth_of(Sync("diloco", 30), 1.3e9, 4)
    assert found is not None
    assert found.expected == pytest.approx(0.915, abs=0.001)
    assert found.low < found.expected < found.high <= 1.0
    assert found.extrapolated == ""


def test_exact_training_is_worth_all():
    assert token_worth(islands_plan(machines(), Sync("every-step"))) == EXACT


@pytest.mark.parametrize(
    "sync",
    [
        Sync("local-sgd", 10), Sync("co2", 10), Sync("independent"), Sync("every-step", compression="int8"),
        Sync("diloco", 10, compression="top-k=1%"), Sync("diloco", 10, aggregation="median"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_published_is_unknown(sync):
    assert worth_of(sync, 1e9, 2) is None


def test_what_is_outside_of_the_published_range_is_said():
    found = worth_of(Sync("streaming-diloco", 500, 1, 4), 70e9, 16)
    assert found is not None
    assert found.extrapolated == (
        "70 billion parameters (published: to 10), 16 islands (published: to 8), 500 inner steps (published: to 100)"
    )


@given(st.floats(1e7, 1e12), st.integers(2, 32), st.integers(1, 1000), st.integers(1, 1000))
def test_more_steps_and_islands_are_never_worth_more(parameters, islands, one, two):
    fewer, more = sorted((one, two))
    few, many = (worth_of(Sync("diloco", steps), parameters, islands).expected for steps in (fewer, more))
    assert 0.0 < many <= few <= 1.0
    assert worth_of(Sync("diloco", more), parameters, islands + 1).expected <= many * (1 + 1e-9)
