"""Calibration: numbers that made the measurements are found again, whole groups are held out, files come back as they were."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from holmes_sim import calibration, cases, cli, validation
from holmes_sim.cases import Case
from sim.engine.engine import simulate
from sim.formats import catalog
from sim.formats.documents import check, parse
from sim.formats.stack_facts import StackFacts
from sim.hardware.stack import DEFAULT, Stack
from sim.plan.under_stack import with_stack
from tests.more import deep

SC21 = cases.load(validation.folder() / "megatron_sc21.yaml")
SMALL = tuple(case for case in SC21 if case.stack == "megatron-2020" and "a100" in case.id)
TRUE = Stack(
    gemm=0.8, attention=DEFAULT.attention, elementwise=0.7, communication=0.8, launch=DEFAULT.launch, step=DEFAULT.step
)


@pytest.fixture(scope="module")
def measured() -> tuple[Case, ...]:
    """Runs of one software stack, measured by the simulator itself under known numbers."""
    cases = [(case, case.plan) for case in SMALL]
    return tuple(replace(case, measured_s=simulate(with_stack(TRUE, plan)).step_s) for case, plan in cases if plan)


@pytest.fixture(scope="module")
def fit(measured: tuple[Case, ...]) -> calibration.Fit:
    """What is found from these runs."""
    found = calibration.calibrate(measured)
    assert found.common is None, "they have one source"
    (one,) = found.fits
    return one


def test_the_numbers_that_made_the_runs_are_nearly_found_again(fit: calibration.Fit) -> None:
    """Nearly: the prior draws towards the default, and products and passes cost much the same on all of four runs."""
    assert fit.numbers == ("gemm", "elementwise", "communication", "step")
    assert fit.default_error > 0.15
    assert fit.error < 0.01
    assert fit.honest_error < 0.03
    assert fit.stack.gemm < DEFAULT.gemm
    assert fit.stack.elementwise < DEFAULT.elementwise
    assert (fit.stack.attention, fit.stack.launch) == (DEFAULT.attention, DEFAULT.launch)


def test_one_odd_run_does_not_bend_the_fit(measured: tuple[Case, ...], fit: calibration.Fit) -> None:
    odd = replace(measured[0], id="odd", measured_s=10 * measured[0].measured_s)
    (bent,) = calibration.calibrate((*measured, odd)).fits
    assert bent.stack.gemm == pytest.approx(fit.stack.gemm, rel=0.05)


def test_every_model_family_is_predicted_by_a_fit_without_it(measured: tuple[Case, ...], fit: calibration.Fit) -> None:
    families = [one for one in fit.held_out if one.axis == "model"]
    assert [one.group for one in families] == ["hidden 1920", "hidden 2304", "hidden 3072", "hidden 4096"]
    assert [case for one in families for case in one.cases] == list(fit.cases) == [case.id for case in measured]


def test_degrees_and_numbers_of_nodes_are_held_out_too(measured: tuple[Case, ...], fit: calibration.Fit) -> None:
    """The four runs are on one node, without a pipeline, with tp 1, 2, 4 and 8: one axis differs besides the model."""
    assert {one.axis for one in fit.held_out} == {"model", "tp"}
    degrees = [(one.group, one.cases) for one in fit.held_out if one.axis == "tp"]
    assert degrees == [(f"tp {case.plan.config.tp}", (case.id,)) for case in measured if case.plan]


def test_the_file_of_a_stack_names_what_is_fitted_and_facts_that_are_not() -> None:
    """Runs that the simulator measured with 400 bytes more for each gradient: from 0, the prior lets 300 at least be found."""
    true = replace(DEFAULT, update_bytes=400.0, all_reduces=True)
    runs = [(case, case.plan) for case in cases.load(validation.folder() / "internevo.yaml") if case.plan]
    slow = [replace(c, stack="nanotron-2025", measured_s=simulate(with_stack(true, plan)).step_s) for c, plan in runs]
    (fit,) = calibration.calibrate(slow).fits
    assert fit.numbers == ("gemm", "launch", "network_delay", "update_bytes")
    assert fit.stack.all_reduces
    assert fit.default_error > 5 * fit.error
    assert fit.error < 0.01
    assert 300 < fit.stack.update_bytes < 420
    facts = check(parse("mine.yaml", calibration.text(fit)), StackFacts)
    assert (tuple(facts.fits), facts.all_reduces) == (fit.numbers, True)
    shipped = catalog.stack_facts("nanotron-2025")
    assert (facts.memory, facts.sources) == (shipped.memory, shipped.sources)


def test_a_round_that_makes_the_fit_worse_does_not_count() -> None:
    """InternEvo: beyond 1.09 of the default no link is faster, so sensitivities taken there would send it back."""
    found = catalog.stack_facts("internevo-2023")
    assert found.fitted.communication > 1.0
    assert found.error.fitted < found.error.default


def test_groups_are_families_then_devices_then_networks() -> None:
    assert set(calibration.groups(SMALL)) == {"hidden 1920", "hidden 2304", "hidden 3072", "hidden 4096"}
    first = [case for case in SC21 if "gpt-1b" in case.id]
    assert calibration.groups(first) == ("v100-sxm3-32gb", "a100-sxm4-40gb")
    internevo = cases.load(validation.folder() / "internevo.yaml")
    assert set(calibration.groups(internevo)) == {"one node", "roce"}
    assert calibration.groups(SMALL[:1]) == ("all",)


def test_a_stack_of_one_group_is_held_against_the_default(measured: tuple[Case, ...]) -> None:
    (fit,) = calibration.calibrate(measured[:1]).fits
    assert fit.held_out == ()
    assert fit.honest_error == fit.default_error


def test_a_stack_file_comes_back_as_it_was(fit: calibration.Fit) -> None:
    facts = check(parse("mine.yaml", calibration.text(fit)), StackFacts)
    assert facts.name == "megatron-2020"
    assert facts.fitted.stack().gemm == fit.stack.gemm
    assert facts.fitted.stack().step == pytest.approx(fit.stack.step, rel=0.01)
    assert tuple(facts.cases) == fit.cases
    assert facts.error.held_out == pytest.approx(fit.honest_error, abs=1e-4)


def test_what_cases_leave_out_is_kept_in_the_file_of_a_fit(fit: calibration.Fit) -> None:
    """A stack that is fitted anew keeps the facts that its cases were read with; one without them gets no such key."""
    again = check(parse("mine.yaml", calibration.text(replace(fit, name="libai-2022"))), StackFacts)
    assert again.usual == catalog.stack_facts("libai-2022").usual
    assert (again.usual.layer_partition, again.usual.overlaps_pure_data) == ("fuller-middle", True)
    assert "usual" not in calibration.written(fit)


def test_that_launches_block_is_kept_under_every_number() -> None:
    """A fact of the runs, not a number: every set of constants keeps it."""
    bloom = cases.load(validation.folder() / "bloom.yaml")
    assert validation.stack_of(bloom[0], "default") == (
        "default",
        replace(DEFAULT, blocking=True, newest_attention=False),
        False,
    )
    for mode in ("fitted", "honest"):
        assert validation.stack_of(bloom[0], mode)[1].blocking
        assert not validation.stack_of(SC21[0], mode)[1].blocking
    (fit,) = calibration.calibrate([case for case in bloom if "-8l-" in case.id]).fits
    assert fit.stack.blocking
    assert check(parse("mine.yaml", calibration.text(fit)), StackFacts).blocking


@deep
def test_the_command_writes_a_file_for_every_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(validation.folder() / "holmes.yaml")
    monkeypatch.setattr(
        sys, "argv", ["holmes-sim", "calibrate", "--cases", path, "-o", str(tmp_path / "new" / "stacks"), "--json"]
    )
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    (printed,) = json.loads(capsys.readouterr().out)["stacks"]
    assert (printed["name"], len(printed["cases"])) == ("holmes-2024", 3)
    assert [file.name for file in (tmp_path / "new" / "stacks").iterdir()] == ["holmes-2024.yaml"]


@pytest.mark.parametrize(
    ("mode", "constants", "seen"),
    [("default", "default", False), ("fitted", "megatron-2020", True), ("honest", "megatron-2020 without hidden 1920", False)],
)
def test_a_case_is_predicted_with_the_requested_constants(mode: str, constants: str, seen: bool) -> None:
    (row, *_) = validation.validate(SMALL[:1], mode)
    assert (row.constants, row.seen) == (constants, seen)


def test_a_case_that_no_fit_saw_takes_its_stack_and_is_marked() -> None:
    """Other people's runs of a known stack: predicted with it, and counted among those that it was not fitted to."""
    new = replace(SMALL[0], id="mine")
    rows = validation.validate((SMALL[0], new), "fitted")
    assert [(row.constants, row.seen) for row in rows] == [("megatron-2020", True), ("megatron-2020", False)]
    assert [one.n for one in validation.by_fit(rows).values()] == [1, 1]
    (honest,) = validation.validate((new,), "honest")
    assert honest.constants == "megatron-2020"


def test_one_set_for_all_is_what_the_sources_agree_on(measured: tuple[Case, ...]) -> None:
    """Two sources measured under the same numbers: the set fitted to one predicts the other."""
    two = tuple(replace(case, source=str(index % 2)) for index, case in enumerate(measured))
    common = calibration.calibrate(two).common
    assert common is not None
    assert common.default_error > 0.15
    assert common.error < 0.03
    assert common.left_out_error < 0.05
