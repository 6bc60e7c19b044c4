"""Errors along one axis: every simulated run is in one row of each table, and rows are in the order of their values."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holmes_sim import cases, error_tables, validation
from holmes_sim.validation import Row

SAILOR = cases.load(validation.folder() / "sailor.yaml")
(HOLMES, *_) = cases.load(validation.folder() / "holmes.yaml")


def row(case: cases.Case, error: float) -> Row:
    """A run that is predicted with a given error."""
    return Row(replace(case, measured_s=1.0), 1.0 + error)


def on_nodes(count: int, error: float) -> Row:
    """A run of Holmes' Table 1 (2 or 4 nodes of 8 devices) whose ranks are on the first `count` nodes."""
    assert HOLMES.plan is not None
    seats = tuple(replace(device, node=rank % count) for rank, device in enumerate(HOLMES.plan.placement))
    plan = HOLMES.plan.annotated()
    object.__setattr__(plan, "placement", seats)
    return row(replace(HOLMES, plan=plan), error)


@pytest.mark.parametrize("axis", error_tables.AXES)
def test_every_simulated_run_is_in_one_row(axis: str) -> None:
    rows = [*(row(case, 0.1) for case in SAILOR), Row(SAILOR[0], None), Row(replace(SAILOR[0], plan=None), None)]
    assert sum(one.n for one in error_tables.table(rows, axis).values()) == len(SAILOR) == 18


def test_degrees_are_in_numeric_order() -> None:
    assert list(error_tables.table([row(case, 0.0) for case in SAILOR], "pp")) == ["1", "2", "4"]


def test_errors_of_a_row_are_those_of_its_runs() -> None:
    by_tp = {4: (0.1, -0.3), 8: (0.2,)}
    found = {case.plan.config.tp: case for case in SAILOR if case.plan}
    table = error_tables.table([row(found[tp], error) for tp, errors in by_tp.items() for error in errors], "tp")
    assert [(label, one.n) for label, one in table.items()] == [("4", 2), ("8", 1)]
    assert (table["4"].mape, table["4"].bias) == (pytest.approx(0.2), pytest.approx(-0.1))


def test_numbers_are_grouped_between_powers_of_two() -> None:
    rows = [on_nodes(count, 0.0) for count in (16, 1, 3, 2, 5, 7, 8)]
    assert {label: one.n for label, one in error_tables.table(rows, "nodes").items()} == {
        "1": 1, "2 to 3": 2, "5 to 7": 2, "8": 1, "16": 1,
    }  # fmt: skip


def test_a_run_on_several_device_types_has_a_row_of_its_own() -> None:
    rows = [row(case, 0.0) for case in SAILOR]
    assert {label: one.n for label, one in error_tables.table(rows, "device").items()} == {
        "gh200-96gb": 15, "rtx-3090 + rtx-2080-ti + titan-rtx": 2, "rtx-3090 + titan-rtx": 1,
    }  # fmt: skip


def test_json_has_a_table_for_each_axis_and_none_without(run: Callable[..., Any]) -> None:
    path = validation.folder() / "holmes.yaml"
    printed = json.loads(run("validate", "--cases", path, "--by", "tp", "--by", "precision", "--json").out)
    assert {axis: {label: one["n"] for label, one in table.items()} for axis, table in printed["by"].items()} == {
        "tp": {"1": 3},
        "precision": {"fp16": 3},
    }
    assert "by" not in json.loads(run("validate", "--cases", path, "--json").out)
    assert "Errors by tp" in run("validate", "--cases", path, "--by", "tp").out


def test_an_unknown_axis_is_named(run: Callable[..., Any]) -> None:
    seen = run("validate", "--by", "colour")
    assert (seen.code, seen.err) == (2, "error: --by 'colour' is unknown; known: tp, pp, nodes, device, precision\n")
