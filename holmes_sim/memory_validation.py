"""Validate the memory of a plan against measured runs: errors of peak memory, and which layouts ran or failed.

A layout is called feasible if its software runs it and every rank's memory fits its device, as the planner decides it
(`planner.placement.simulation`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from holmes_sim import validation
from holmes_sim.cases import Case
from planner.placement.simulation import fits
from sim.kernels import memory
from sim.plan.plan import Plan
from sim.units import Bytes


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Layouts that `ran` and `failed` for want of memory, and how many of each are called feasible and infeasible.

    `left_out`: layouts without a plan, which are in none of the other numbers."""

    ran: int
    ran_feasible: int
    failed: int
    failed_infeasible: int
    left_out: int

    def facts(self) -> dict[str, Any]:
        """Plain data: numbers, and shares (None if there is no such layout)."""
        return {
            "ran": self.ran,
            "ran_feasible": self.ran_feasible,
            "ran_feasible_share": self.ran_feasible / self.ran if self.ran else None,
            "failed": self.failed,
            "failed_infeasible": self.failed_infeasible,
            "failed_infeasible_share": self.failed_infeasible / self.failed if self.failed else None,
            "left_out": self.left_out,
        }


def with_facts(cases: Iterable[Case]) -> tuple[Case, ...]:
    """The cases with plans that keep in memory what their software keeps, and that know what it refuses to run. Facts are not
    fitted, so every set of constants gives the same."""
    found = []
    for case in cases:
        if case.plan is not None:
            stack = validation.stack_of(case, "default")[1]
            config = replace(case.plan.config, memory=stack.memory, refuses=stack.refuses)
            case = replace(case, plan=replace(case.plan, config=config))
        found.append(case)
    return tuple(found)


def outcomes(cases: Iterable[Case]) -> Outcomes:
    """Count the outcomes of cases, and those that the planner's test of memory agrees with."""
    known = [case for case in cases if case.outcome]
    called = [(case.outcome, fits(case.plan)) for case in known if case.plan is not None]
    ran, failed = ([feasible for outcome, feasible in called if outcome == which] for which in ("ran", "failed"))
    return Outcomes(len(ran), sum(ran), len(failed), len(failed) - sum(failed), len(known) - len(called))


def memory_errors(cases: Iterable[Case]) -> tuple[tuple[Case, Bytes, float], ...]:
    """(case, predicted bytes, error) of every case with a plan and a measured peak memory.

    The prediction counts what the source counts: memory reserved by torch, or all memory of the device; of the fullest rank, or
    of the first stage.
    """
    found = []
    for case in cases:
        if case.plan is not None and case.measured_bytes is not None:
            predicted = _predicted(case, case.plan)
            found.append((case, predicted, predicted / case.measured_bytes - 1))
    return tuple(found)


def _predicted(case: Case, plan: Plan) -> Bytes:
    peaks = memory.reserved_bytes(plan) if case.inside_torch else memory.peak_memory(plan)
    return peaks[0] if case.on_first else max(peaks)


def facts(cases: tuple[Case, ...]) -> dict[str, Any]:
    """Plain data of memory errors and outcomes, as `holmes-sim validate --json` prints them; empty if nothing was measured."""
    errors, called = memory_errors(cases), outcomes(cases)
    listed = [{"id": case.id, "predicted": p, "measured": case.measured_bytes, "error": error} for case, p, error in errors]
    return ({"memory": listed} if listed else {}) | (
        {"outcomes": called.facts()} if any(case.outcome for case in cases) else {}
    )
