"""Layouts to measure: conditioning by hand, lists that spread, and what a measurement says about other layouts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from holmes_sim import layout_choice
from holmes_sim.layout_choice import Belief
from sim.plan.parallel_config import ParallelConfig

ONE = ParallelConfig(tp=2, pp=2, dp=8, microbatch_size=4, num_microbatches=(4,) * 8, zero_stage=1)
WIDER = replace(ONE, tp=8)
LARGER = replace(ONE, microbatch_size=8)


def independent(means: list[float], variance: float = 0.01) -> Belief:
    return Belief(np.array(means), variance * np.eye(len(means)))


def test_a_measurement_moves_what_is_correlated_with_it() -> None:
    """By hand: covariance 2 over variance 4 is a gain of a half, and 4 - 2 x 2 / 4 = 3 of the variance is left."""
    after = Belief(np.zeros(3), np.array([[4.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 4.0]])).given({0: 1.0})
    assert after.mean == pytest.approx([1.0, 0.5, 0.0])
    assert np.diag(after.covariance) == pytest.approx([0.0, 3.0, 4.0])


def test_the_order_of_measurements_does_not_matter() -> None:
    before = layout_choice.belief([ONE, WIDER, LARGER], np.array([1.0, 1.1, 1.2]), np.eye(3))
    one, other = before.given({0: 1.3, 2: 1.1}), before.given({0: 1.3}).given({2: 1.1})
    assert one.mean == pytest.approx(other.mean)
    assert one.covariance == pytest.approx(other.covariance, abs=1e-12)


def test_draws_have_the_means_and_covariances_of_the_distribution(monkeypatch) -> None:
    monkeypatch.setattr(layout_choice, "DRAWS", 100_000)
    covariance = np.array([[0.04, 0.03], [0.03, 0.09]])
    draws = Belief(np.array([1.0, 2.0]), covariance).draws()
    assert draws.mean(axis=1) == pytest.approx([1.0, 2.0], abs=0.005)
    assert np.cov(draws) == pytest.approx(covariance, rel=0.03)


def test_the_first_choice_has_the_least_expected_step() -> None:
    assert layout_choice.propose(independent([1.3, 1.1, 1.2]), 1)[0].index == 1


def test_a_layout_that_errs_alike_is_worth_less_than_a_slower_one_that_does_not() -> None:
    """Layout 1 always takes 1 % longer than layout 0; layout 2 is expected to take 5 % longer, but errs on its own."""
    covariance = np.array([[0.04, 0.04, 0.0], [0.04, 0.04, 0.0], [0.0, 0.0, 0.04]])
    found = layout_choice.propose(Belief(np.array([1.0, 1.01, 1.05]), covariance), 2)
    assert [one.index for one in found] == [0, 2]


def test_a_layout_that_cannot_be_fastest_comes_last() -> None:
    assert [one.index for one in layout_choice.propose(independent([9.0, 1.0, 1.1]), 3)] == [1, 2, 0]


def test_shares_are_the_chances_of_being_the_fastest() -> None:
    """Two equal layouts have a half each, within the spread of 1,024 draws; one that is sure to be faster has all."""
    one, other = layout_choice.propose(independent([1.0, 1.0]), 2)
    assert one.share == pytest.approx(0.5, abs=0.05)
    assert one.share + other.share == pytest.approx(1.0)
    assert [found.share for found in layout_choice.propose(independent([1.0, 5.0]), 2)] == [1.0, 0.0]


def test_measured_and_failed_layouts_are_not_proposed_again() -> None:
    found = layout_choice.propose(independent([1.0, 1.1, 1.2, 1.3]), 4, {0: 1.0}, [2])
    assert sorted(one.index for one in found) == [1, 3]


def test_nothing_is_proposed_when_everything_is_known() -> None:
    assert layout_choice.propose(independent([1.0, 1.1]), 2, {0: 1.0}, [1]) == ()


def test_each_further_layout_gains_less() -> None:
    """The expected minimum is submodular: the second layout lowers it by no more than the first after none."""
    draws = independent([1.0, 1.0, 1.0]).draws()
    least = [float(draws[:number].min(axis=0).mean()) for number in (1, 2, 3)]
    assert 0 < least[1] - least[2] < least[0] - least[1]


def test_the_choice_is_the_measured_time_of_a_measured_layout() -> None:
    """Layout 1 was expected to be fastest and was not; layout 2 is still expected to be slower than layout 0 is."""
    assert layout_choice.best(independent([1.0, 0.9, 1.1]), {0: 1.0, 1: 1.4}) == 0
    assert layout_choice.best(independent([1.0, 0.9, 1.1]), {0: 1.2, 1: 1.4}) == 2
    assert layout_choice.best(independent([1.0, 0.9, 1.1]), {}, failed=[1]) == 0


def test_one_slow_run_makes_all_layouts_slower_and_keeps_their_order() -> None:
    """Software that takes half as long again: one measurement shows that most of it is common to all layouts."""
    before = layout_choice.belief([ONE, WIDER], np.log([10.0, 12.0]), np.zeros((2, 1)))
    after = np.exp(before.given({0: math.log(15.0)}).mean)
    assert after[0] == pytest.approx(15.0)
    assert 15.0 < after[1] < 18.0


def test_layouts_with_the_same_sensitivities_err_alike() -> None:
    """A constant that only the first two depend on: a measurement of the first moves the second more than the third."""
    configs, logs = [ONE, WIDER, WIDER], np.zeros(3)
    after = layout_choice.belief(configs, logs, np.array([[1.0], [1.0], [0.0]])).given({0: 0.5}).mean
    assert after[1] > after[2]


def test_distances_are_octaves_of_degrees_and_one_for_another_kind() -> None:
    """tp 8 is two octaves from tp 2, microbatch size 8 one octave from 4."""
    other = replace(ONE, schedule="interleaved", vpp=2)
    where = layout_choice.positions([ONE, WIDER, LARGER, replace(ONE, zero_stage=0), other])
    apart = np.sqrt(np.sum((where - where[0]) ** 2, axis=1))
    assert apart == pytest.approx([0.0, 2.0, 1.0, 1.0, math.sqrt(2)])
