"""Ranges of the step time: as wide as the runs that no fit saw were spread, and honest about how many of them they hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import cases, commands, intervals, validation
from holmes_sim.validation import Row
from sim.formats.edits import edited

TOPOLOGY = commands.load("holmes-infiniband-4")
(FIRST, *_) = cases.load(validation.folder() / "holmes.yaml")


def test_a_step_under_the_default_stack_may_take_much_longer() -> None:
    assert intervals.step_range(10.0, TOPOLOGY) == pytest.approx((8.7, 14.4))
    assert intervals.range_text(10.0, TOPOLOGY) == "8.7 s to 14.4 s measured"


def test_a_stack_that_was_fitted_to_runs_narrows_the_range() -> None:
    own = edited(TOPOLOGY, {"stack": "megatron-2021"})
    assert intervals.step_range(0.1, own) == pytest.approx((0.09, 0.119))
    assert intervals.range_text(0.1, own) == "90 ms to 119 ms measured"


def test_numbers_written_by_hand_do_not_narrow_it() -> None:
    own = edited(TOPOLOGY, {"stack": {"name": "guess", "fitted": {"gemm": 0.8}}})
    assert intervals.step_range(10.0, own) == pytest.approx((8.7, 14.4))


def row(source: str, ratio: float, constants: str = "default") -> Row:
    """A run that took `ratio` times as long as predicted."""
    return Row(replace(FIRST, source=source, measured_s=2.0 * ratio), 2.0, constants)


def test_the_coverage_is_a_mean_over_sources() -> None:
    """All four runs of one source are inside, one of two of the other."""
    rows = (*(row("a", ratio) for ratio in (0.88, 1.0, 1.2, 1.43)), row("b", 1.0), row("b", 1.45))
    assert validation.coverage(rows) == pytest.approx(0.75)
    assert validation.facts(rows)["summary"]["coverage"] == pytest.approx(0.75)


def test_runs_with_fitted_constants_are_held_against_the_narrower_range() -> None:
    assert validation.coverage((row("a", 1.3), row("a", 1.3, "ours"))) == pytest.approx(0.5)
    assert validation.coverage(()) != validation.coverage(()), "NaN without runs"


@pytest.mark.parametrize(("mode", "least", "most"), [("default", 0.75, 1.0), ("honest", 0.7, 1.0)])
def test_shipped_runs_are_inside_as_often_as_the_range_says(mode: str, least: float, most: float) -> None:
    """A small source with a fit: 12 runs of InternEvo."""
    rows = validation.validate(cases.load(validation.folder() / "internevo.yaml"), mode)
    assert least <= validation.coverage(rows) <= most
