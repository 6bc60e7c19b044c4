"""Ranges of the step time: as wide as comparable runs that no fit saw were spread."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from statistics import mean

import pytest

from holmes_sim import cases, intervals, validation
from holmes_sim.intervals import StepRange
from holmes_sim.residuals import Residual, residuals
from holmes_sim.validation import Row
from sim.formats.edits import edited
from sim.plan.plan import Plan

ONE_NODE, SEVERAL_NODES = (
    cases.load(validation.folder() / f"{name}.yaml")[0] for name in ("activation_recomputation", "holmes")
)


def plan_of(case: cases.Case) -> Plan:
    assert case.plan is not None
    return case.plan


def run(source: str, ratio: float, nodes: int = 1) -> Residual:
    """A run that took `ratio` times as long as predicted, with the default stack and with a fitted one."""
    return Residual(source, 0, "a100", 1, 1, nodes, 1.0, (("default", ratio), ("honest", 1.0)))


Given = Callable[..., None]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """Replaces the runs of the data file."""

    def replaced(*runs: Residual) -> None:
        monkeypatch.setattr(intervals, "residuals", lambda: runs)
        for cached in (intervals.ratios, intervals.ratios_without, intervals.held_out, intervals.held_out_coverage):
            monkeypatch.setattr(intervals, cached.__name__, cached.__wrapped__)

    return replaced


@pytest.fixture
def eleven(given: Given) -> None:
    """Runs of one source on one node, from 0.5 to 1.5 times as slow as predicted in steps of 0.1, and one run on two nodes."""
    given(*(run("a", 0.5 + step / 10) for step in range(11)), run("a", 3.0, nodes=2))


@pytest.mark.usefixtures("eleven")
def test_the_range_holds_the_middle_eighty_percent_of_the_runs_with_as_many_nodes() -> None:
    """Each of 11 runs has a share of 1/11, at whose middle it is: 10 % is 0.6 of the way from the first to the second run."""
    assert intervals.ratios(False, False) == (0.56, 1.44)
    assert intervals.ratios(False, True) == (3.0, 3.0)
    assert intervals.ratios(True, False) == (1.0, 1.0)


def test_quantiles_are_those_of_the_weights() -> None:
    """One run with three times the weight counts like three runs at three quarters of a share."""
    assert intervals.quantiles([1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 5) == pytest.approx((1.0, 5.0))
    assert intervals.quantiles([5.0, 1.0, 3.0], [1.0, 1.0, 98.0]) == pytest.approx((2 * 9.5 / 49.5 + 1, 5 - 2 * 9.5 / 49.5))


def test_many_runs_of_one_source_do_not_outweigh_another_source(given: Given) -> None:
    given(run("a", 1.0), *(run("b", 2.0) for _ in range(50)))
    assert intervals.ratios(False, False) == (1.0, 2.0)


def test_each_source_is_compared_with_the_range_of_the_others(given: Given) -> None:
    """a's run is below those of b and c; two of b's three are inside of 1 to 2, which a and c give; c's is."""
    given(run("a", 1.0), run("b", 2.0), run("b", 2.0), run("b", 3.0), run("c", 2.0))
    assert intervals.ratios_without("b", False, False) == (1.0, 2.0)
    assert intervals.held_out_coverage(False) == pytest.approx((0 + 2 / 3 + 1) / 3)


@pytest.mark.parametrize("fitted", [False, True])
def test_ranges_hold_four_of_five_runs_of_a_source_that_is_left_out(fitted: bool) -> None:
    """Law of the shipped runs, within five percentage points; literal shares are in docs/accuracy.md."""
    assert 0.75 <= intervals.held_out_coverage(fitted) <= 0.85


def test_several_nodes_are_slower_than_predicted_more_often_than_one_node() -> None:
    """Law of the shipped runs; the literal ranges are in docs/accuracy.md."""
    for fitted in (False, True):
        (low, high), (low_several, high_several) = (intervals.ratios(fitted, several) for several in (False, True))
        assert low < low_several < 1 < high < high_several


def test_a_fitted_stack_has_the_narrower_range() -> None:
    for several in (False, True):
        (low, high), (fitted_low, fitted_high) = (intervals.ratios(fitted, several) for fitted in (False, True))
        assert fitted_high / fitted_low < high / low


def test_the_stack_of_the_topology_and_the_nodes_of_the_plan_choose_the_range() -> None:
    one, several = plan_of(ONE_NODE), plan_of(SEVERAL_NODES)
    assert (one.nodes, several.nodes) == (1, 4)
    for stack, is_fitted in ((None, False), ("megatron-2021", True), ({"name": "x", "fitted": {"gemm": 0.8}}, False)):
        for plan, has_several in ((one, False), (several, True)):
            here = replace(plan, topology=edited(plan.topology, {"stack": stack})) if stack else plan
            low, high = intervals.ratios(is_fitted, has_several)
            found = intervals.step_range(10.0, here)
            assert (found.low_s, found.high_s) == (pytest.approx(10 * low), pytest.approx(10 * high))


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(6.7, 8.2, "6.7 to 8.2 s"), (0.0912, 0.1187, "91.2 to 119 ms"), (0.987, 1.2, "987 ms to 1.2 s"), (3.0, 3.0, "3 to 3 s")],
)
def test_a_range_as_text(low: float, high: float, text: str) -> None:
    assert StepRange(low, high).text == text


def test_a_range_says_what_it_rests_on() -> None:
    assert StepRange(1.0, 2.0).grade == ""
    rests = StepRange(1.0, 2.0, ("mi300x", "t4"))
    assert rests.grade == "rests on guessed rates of mi300x, t4"
    assert rests.facts() == {"step_range_s": [1.0, 2.0], "guessed_rates": ["mi300x", "t4"]}


def row(source: str, ratio: float, constants: str = "default") -> Row:
    """A run on one node that took `ratio` times as long as predicted."""
    return Row(replace(ONE_NODE, source=source, measured_s=2.0 * ratio), 2.0, constants)


@pytest.mark.usefixtures("eleven")
def test_coverage_is_counted_by_source_and_over_all() -> None:
    """All four runs of one source are inside 0.56 to 1.44, one of two of the other."""
    rows = (*(row("a", ratio) for ratio in (0.58, 1.0, 1.2, 1.43)), row("b", 1.0), row("b", 1.45))
    sources = validation.by_source(rows)
    assert {name: one.coverage for name, one in sources.items()} == {"a": 1.0, "b": 0.5}
    assert validation.summary(rows, one_source=False).coverage == pytest.approx(5 / 6)
    assert validation.macro_coverage(sources) == validation.facts(rows)["summary"]["macro_coverage"] == 0.75


def test_runs_with_fitted_constants_are_compared_with_the_range_of_fitted_stacks() -> None:
    between = mean(intervals.ratios(fitted, False)[0] for fitted in (False, True))
    assert [row("a", between).inside, row("a", between, "ours").inside] == [True, False]
    assert validation.macro_coverage({}) != validation.macro_coverage({}), "NaN without runs"


def test_the_data_file_has_every_shipped_run() -> None:
    """A new case needs `python -m benchmarks residuals`."""
    folder = validation.folder()
    fitted, new = (
        sum(len(re.findall(r"^ *- id:", path.read_text(encoding="utf-8"), re.MULTILINE)) for one in folders for path in one)
        for folders in (
            [folder.glob("*.yaml"), (folder / "layouts").glob("*.yaml")],
            [(folder / "new_software").glob("*.yaml")],
        )
    )
    columns = [run.columns for run in residuals()]
    assert columns.count(("default", "honest", "honest-tp", "honest-pp", "honest-nodes")) == fitted
    assert columns.count(("default",)) == new == len(columns) - fitted


def test_runs_without_a_fit_widen_only_the_range_of_the_default(given: Given) -> None:
    """Software whose stack has no fit says nothing about fitted ones."""
    given(run("a", 1.0), Residual("b", 1, "h100", 1, 1, 1, 1.0, (("default", 2.0),)))
    assert (intervals.ratios(False, False), intervals.ratios(True, False)) == ((1.0, 2.0), (1.0, 1.0))
