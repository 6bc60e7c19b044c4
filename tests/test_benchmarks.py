"""Benchmarks measure what they say they do; how fast it is stands in no test."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import evaluator, scale
from benchmarks.__main__ import main
from sim.folding import fold
from sim.recurrence import steps


@pytest.mark.parametrize(("kinds", "devices"), [(scale.UNIFORM, 1), (scale.MIXED, 4)])
@pytest.mark.parametrize("size", [1024, 8192])
def test_a_machine_of_any_size_has_sixteen_kinds_of_ranks(
    kinds: tuple[tuple[str, str, str, str], ...], devices: int, size: int, tmp_path: Path
) -> None:
    """One for each pipeline place; mixed machines have a quarter of the places on each of four kinds of devices."""
    plan = scale.plan(kinds, size, tmp_path)
    assert len({plan.fleet.spec(device).name for device in plan.placement}) == devices
    assert fold(plan).sizes == (size // 16,) * 16


def test_a_simulation_is_measured_in_a_process_of_its_own() -> None:
    uniform, mixed = scale.measure((1024,))
    assert (uniform.fleet, uniform.devices, uniform.classes) == ("uniform", 1024, 16)
    assert (mixed.fleet, mixed.classes) == ("mixed", 16)
    assert 0 < uniform.seconds < uniform.process_seconds
    assert uniform.peak_bytes > 2**20


def test_candidates_are_splits_of_all_layers() -> None:
    classes, layers = evaluator.splits(50, 8, 1, 96)
    assert (layers.sum(axis=1) == 96).all() and (layers >= 1).all()
    assert (steps(evaluator.table("1f1b", 8, 16, 1).candidates(classes, layers)) > 0).all()


def test_an_unknown_part_is_one_line() -> None:
    with pytest.raises(SystemExit, match="unknown: speed; known: engine, scale, evaluator, peers"):
        main(["speed"])
