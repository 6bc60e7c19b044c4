"""Resolution: the predicted difference below which the order of two layouts is wrong in more than one of five pairs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import cases, resolution, validation
from holmes_sim.residuals import Residual
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction

(CASE, *_) = cases.load(validation.folder() / "holmes.yaml")


def run(choice: int, predicted: float, measured: float) -> Residual:
    """A run of a choice with a predicted and a measured step."""
    return Residual("a", choice, "a100", 1, 1, 1, measured, (("default", measured / predicted),))


def plan(step: float) -> Plan:
    """A plan for four nodes with a predicted step."""
    assert CASE.plan is not None
    return replace(CASE.plan, prediction=Prediction(step, 1.0, 1.0, 1.0, 0.1, (), 0.0, 0.0, 0.5))


def test_pairs_are_runs_of_one_choice_and_right_if_ordered_as_measured() -> None:
    runs = [run(0, 1.0, 2.0), run(0, 1.5, 3.0), run(0, 3.0, 2.5), run(1, 8.0, 1.0)]
    assert sorted(resolution.pairs(runs, "default")) == [
        (pytest.approx(1.5), True),
        (pytest.approx(2.0), False),
        (pytest.approx(3.0), True),
    ]


def test_equal_predictions_are_no_pair() -> None:
    assert list(resolution.pairs([run(0, 2.0, 1.0), run(0, 2.0, 4.0)], "default")) == []


def test_the_resolution_is_where_wrong_orders_become_rare() -> None:
    """Half of the pairs below 1.05 are wrong, and none above."""
    close = [(1 + number / 1000, number % 2 == 0) for number in range(1, 51)]
    apart = [(1.05 + number / 100, True) for number in range(1, 51)]
    assert resolution.least_ratio([*apart, *close]) == pytest.approx(1.049)


def test_pairs_that_are_all_right_have_no_resolution() -> None:
    assert resolution.least_ratio([(1.1, True), (1.01, True)]) == 1.0


def test_pairs_beyond_the_resolution_are_right_more_often_than_four_of_five() -> None:
    """Law of the shipped runs, with the default stack and a fitted one, on one node and on several."""
    for fitted, column in ((False, "default"), (True, "honest")):
        for several in (False, True):
            least = resolution.resolution(fitted, several)
            runs = [one for one in resolution.residuals() if (one.nodes > 1) is several]
            found = list(resolution.pairs(runs, column))
            below, above = ([right for ratio, right in found if (ratio < least) is side] for side in (True, False))
            assert sum(below) / len(below) < 0.8 < sum(above) / len(above)


def test_fitted_stacks_tell_layouts_on_several_nodes_apart_better() -> None:
    assert 1.0 < resolution.resolution(True, True) < resolution.resolution(False, True) < 1.25


def test_plans_are_close_if_they_differ_by_less_than_the_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "resolution", lambda fitted, several: 1.06 if (fitted, several) == (False, True) else 9.0)
    fastest = plan(10.0)
    assert [resolution.is_close(fastest, plan(step)) for step in (10.0, 10.5, 10.61, 9.5, 9.0)] == [
        False, True, False, True, False,
    ]  # fmt: skip
    assert resolution.why_close((fastest, plan(10.5))) == (
        "~ cannot be told apart: predicted differences below 6% are ordered wrongly in more than one of five pairs of measured "
        "layouts."
    )
