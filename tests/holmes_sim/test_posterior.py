"""The fit of constants: no share beyond what was measured, and the others fitted again where one is at its bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import sim
from holmes_sim.posterior import MOST, largest, posterior, stack_at
from sim.hardware.stack import DEFAULT

NUMBERS = ("gemm", "elementwise", "step")


def runs(gemm: float, elementwise: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    """(sensitivities, residuals at the default) of 60 runs of a software with such factors on the default's constants."""
    rng = np.random.default_rng(7)
    slopes = np.column_stack([-rng.uniform(0.4, 0.8, 60), -rng.uniform(0.1, 0.3, 60), rng.uniform(0.0, 0.2, 60)])
    return slopes, -slopes @ np.log([gemm, elementwise, step])


def test_shares_inside_their_bounds_are_found() -> None:
    slopes, residuals = runs(0.9, 1.1, 1.2)
    found = stack_at(NUMBERS, posterior(slopes, residuals, NUMBERS), DEFAULT)
    assert (found.gemm, found.elementwise, found.step) == pytest.approx(
        (0.9 * DEFAULT.gemm, 1.1 * DEFAULT.elementwise, 1.2 * DEFAULT.step), rel=0.03
    )


def test_no_fit_is_faster_than_what_was_measured() -> None:
    """Runs of a software with 1.6 times the product rate: gemm stops at 1.1, and the other two take what they can."""
    slopes, residuals = runs(1.6, 1.0, 1.0)
    unknowns = posterior(slopes, residuals, NUMBERS)
    found = stack_at(NUMBERS, unknowns, DEFAULT)
    assert found.gemm == MOST["gemm"] == 1.1
    assert found.elementwise == MOST["elementwise"] == 1.1
    assert unknowns[2] < 0.0
    without = posterior(slopes[:, 2:], residuals + slopes[:, :2] @ unknowns[:2], NUMBERS[2:])
    assert unknowns[2] == pytest.approx(without[0], rel=1e-6)


def test_bounds_count_from_the_start_of_the_fit() -> None:
    faster = replace(DEFAULT, gemm=1.0)
    assert np.exp(largest(("gemm", "step"), faster)) == pytest.approx([1.1, np.inf])
    assert largest(("gemm",), replace(DEFAULT, gemm=1.2)) == 0.0


def test_no_shipped_fit_is_faster_than_what_was_measured() -> None:
    """Shares of all fits of the shipped stacks, those for runs that a fit did not see, too; 1.25 of collectives once."""
    found: dict[str, list[float]] = {name: [] for name in MOST}
    for path in sorted((Path(sim.__file__).parent / "catalog" / "stacks").glob("*.yaml")):
        facts = yaml.safe_load(path.read_text(encoding="utf-8"))
        fits = [facts.get("fitted", {}), *(one["fitted"] for one in facts.get("held_out", []))]
        for name, shares in found.items():
            shares += [float(one[name]) for one in fits if name in one]
    assert {name: max(shares) <= MOST[name] for name, shares in found.items()} == dict.fromkeys(MOST, True)
