"""Published runs of validation/ by id, with the facts of their software."""

from __future__ import annotations

from holmes_sim import cases, validation
from holmes_sim.cases import Case
from sim.plan.parallel_config import ParallelConfig
from sim.plan.under_stack import with_stack


def runs(name: str) -> dict[str, Case]:
    """Id -> case of a file of validation/, such as `new_software/xtuner`."""
    return {case.id: case for case in cases.load(validation.folder() / f"{name}.yaml")}


def config(case: Case) -> ParallelConfig:
    """The configuration of a case with the facts of its software."""
    assert case.plan is not None
    return with_stack(validation.stack_of(case, "default")[1], case.plan).config


def check_file(name: str, number: int) -> None:
    """A file has so many runs, each with a plan and a measured step."""
    found = runs(name)
    assert len(found) == number
    assert all(case.plan is not None and case.measured_s for case in found.values())
