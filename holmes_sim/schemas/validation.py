"""Predictions beside published and own measured runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.fields import StrictModel

NAME = "validation"
FORMAT = "holmes-sim/validation/1"
WRITTEN_BY = ("validate --json",)


class ErrorSummary(StrictModel):
    """Errors of a set of runs; numbers that are not defined are null."""

    n: int = Field(description="number of runs with a prediction")
    left_out: int = Field(description="number of runs without one")
    mape: float | None = Field(description="mean absolute error of the step, a fraction")
    median_ape: float | None = Field(description="median absolute error of the step, a fraction")
    bias: float | None = Field(description="mean error of the step, a fraction")
    coverage: float | None = Field(description="fraction of measured steps inside the range of their prediction")
    kendall_tau: float | None = Field(description="Kendall's tau-a of predicted and measured steps of one source, -1 to 1")
    regret: float | None = Field(
        description="by how much the layout predicted as fastest is slower than the fastest, a fraction"
    )


class WholeSummary(ErrorSummary):
    """Errors of all runs. Macro numbers are means over sources."""

    macro: float | None = Field(description="mean absolute error of the step, each source with the same weight, a fraction")
    macro_bias: float | None = Field(description="mean error of the step, each source with the same weight, a fraction")
    macro_coverage: float | None = Field(description="fraction of measured steps inside their range, likewise")
    seen: ErrorSummary = Field(description="runs that the constants were fitted to")
    unseen: ErrorSummary = Field(description="all other runs")
    by_source: dict[str, ErrorSummary]


class ValidatedRun(StrictModel):
    """A run and its prediction."""

    id: str
    source: str
    stack: str = Field(description="software stack of the run")
    constants: str = Field(description="constants of the prediction")
    seen: bool = Field(description="whether these were fitted to this run")
    predicted_s: float | None = Field(description="predicted seconds of a step; null without a plan")
    measured_s: float | None = Field(description="measured seconds of a step")
    error: float | None = Field(description="predicted / measured - 1, a fraction")
    reason: str | None = Field(None, description="why there is no prediction")
    compute: str | None = Field(None, description="with a profile: source of the compute seconds")


class MemoryRow(StrictModel):
    """Peak memory of a run."""

    id: str
    predicted: float = Field(description="predicted bytes")
    measured: float = Field(description="measured bytes")
    error: float = Field(description="predicted / measured - 1, a fraction")


class MemoryOutcomes(StrictModel):
    """Layouts that ran, and that failed for want of memory; shares are null if there are none."""

    ran: int = Field(description="number of layouts that ran")
    ran_feasible: int = Field(description="number of these that are called feasible")
    ran_feasible_share: float | None = Field(description="fraction of these")
    failed: int = Field(description="number of layouts that failed")
    failed_infeasible: int = Field(description="number of these that are called infeasible")
    failed_infeasible_share: float | None = Field(description="fraction of these")
    left_out: int = Field(description="number of layouts without a plan")


class HeldOutCoverage(StrictModel):
    """Of the published runs of a source, the fraction inside the ranges that the other sources give; means over sources."""

    default: float = Field(description="with the default stack")
    fitted: float = Field(description="with fitted stacks")


class ValidationDocument(StrictModel):
    """The runs and summaries of their errors."""

    format: Literal["holmes-sim/validation/1"]
    cases: tuple[ValidatedRun, ...]
    summary: WholeSummary
    held_out_coverage: HeldOutCoverage
    by: dict[str, dict[str, ErrorSummary]] | None = Field(None, description="with --by: axis -> label -> errors")
    memory: tuple[MemoryRow, ...] | None = Field(None, description="runs with a measured peak memory")
    outcomes: MemoryOutcomes | None = Field(None, description="runs that say whether they ran")


MODEL = ValidationDocument
