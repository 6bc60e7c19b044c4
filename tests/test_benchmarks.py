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


@pytest.mark.parametrize(("size", "kinds_of_ranks"), [(1024, 64), (8192, 128)])
def test_replicas_of_four_kinds_have_their_own_kinds_of_ranks(size: int, kinds_of_ranks: int, tmp_path: Path) -> None:
    """Sixteen for each kind of device; with more than two replicas of a kind, gradients leave the cluster from some only."""
    plan = scale.plan(scale.MIXED, size, tmp_path, by_replica=True)
    kinds = [[plan.fleet.spec(plan.placement[rank]).name for rank in group.ranks] for group in plan.groups]
    assert {len(set(names)) for group, names in zip(plan.groups, kinds, strict=True) if group.kind == "dp"} == {4}
    assert {len(set(names)) for group, names in zip(plan.groups, kinds, strict=True) if group.kind != "dp"} == {1}
    assert len(fold(plan).sizes) == kinds_of_ranks


def test_a_simulation_is_measured_in_a_process_of_its_own() -> None:
    uniform, stages, replicas = scale.measure((1024,))
    assert (uniform.fleet, uniform.devices, uniform.classes) == ("uniform", 1024, 16)
    assert (stages.fleet, stages.classes) == ("stages", 16)
    assert (replicas.fleet, replicas.classes) == ("replicas", 64)
    assert uniform.seconds > 0 and uniform.process_seconds > 0
    assert uniform.peak_bytes > 2**20


def test_candidates_are_splits_of_all_layers() -> None:
    classes, layers = evaluator.splits(50, 8, 1, 96)
    assert (layers.sum(axis=1) == 96).all() and (layers >= 1).all()
    assert (steps(evaluator.table("1f1b", 8, 16, 1).candidates(classes, layers)) > 0).all()


def test_an_unknown_part_is_one_line() -> None:
    with pytest.raises(SystemExit, match="unknown: speed; known: engine, scale, evaluator, peers"):
        main(["speed"])
