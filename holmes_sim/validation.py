"""Held against measured runs: every case simulated with its own configuration, errors by source, ranking and regret.

One set of constants for everything (`--stack default`): nothing is fitted to these runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, median
from typing import Any

from sim import cases, compute, profile
from sim.cases import Case
from sim.engine import simulate
from sim.errors import HolmesError
from sim.plan import Plan

PARALLEL_FROM = 20
"""Cases from which on several processes are worth their start."""


@dataclass(frozen=True, slots=True)
class Row:
    """A case and what the simulator says of it; `predicted_s` is None where the case cannot be simulated."""

    case: Case
    predicted_s: float | None

    @property
    def error(self) -> float | None:
        """Predicted over measured, minus 1: negative where the simulator is optimistic."""
        return None if self.predicted_s is None else self.predicted_s / self.case.measured_s - 1


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors of a set of rows. `kendall_tau` and `regret` compare cases of one source; None where nothing can be compared."""

    n: int
    left_out: int
    mape: float
    median_ape: float
    bias: float
    kendall_tau: float | None
    regret: float | None


def folder() -> Path:
    """The shipped cases: in the package once installed, beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "validation"
    return inside if inside.is_dir() else package.parent / "validation"


def read(paths: Iterable[str | Path], measured: str | Path | None = None) -> tuple[Case, ...]:
    """All cases of files and folders, in the order of their names, with a measured profile (name or file) on their devices.

    Raises TopologyError, and HolmesError where there are none."""
    given = profile.load(measured) if measured is not None else None
    files: list[Path] = []
    for path in map(Path, paths):
        files += sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    found = tuple(case for file in files for case in cases.load(file, given))
    if not found:
        raise HolmesError(f"no cases in {', '.join(map(str, paths))}; case files end in .yaml")
    return found


def validate(found: tuple[Case, ...], progress: Callable[[str], None] = lambda text: None) -> tuple[Row, ...]:
    """Simulate every case that can be; several at a time where there are many."""
    plans = [case.plan for case in found if case.plan is not None]
    steps: list[float] = []
    if len(plans) < PARALLEL_FROM:
        steps = [_step(plan) for plan in plans]
    else:
        with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
            for done, seconds in enumerate(pool.map(_step, plans, chunksize=4)):
                steps.append(seconds)
                progress(f"{done + 1} of {len(plans)} cases")
    results = iter(steps)
    return tuple(Row(case, next(results) if case.plan is not None else None) for case in found)


def _step(plan: Plan) -> float:
    return simulate(plan).step_s


def summary(rows: Iterable[Row], one_source: bool = True) -> Summary:
    """Errors of rows; tau and regret only where they are of one source."""
    rows = tuple(rows)
    errors = [row.error for row in rows if row.error is not None]
    pairs = [(row.predicted_s, row.case.measured_s) for row in rows if row.predicted_s is not None]
    sizes = [abs(error) for error in errors] or [float("nan")]
    return Summary(
        n=len(errors),
        left_out=len(rows) - len(errors),
        mape=mean(sizes),
        median_ape=median(sizes),
        bias=mean(errors) if errors else float("nan"),
        kendall_tau=kendall_tau(pairs) if one_source else None,
        regret=regret(rows) if one_source else None,
    )


def rests_on(row: Row) -> str:
    """What the compute of a case rests on: measured where all its devices are, else why not; empty without a profile."""
    plan = row.case.plan
    specs = {plan.fleet.spec(device) for device in plan.placement} if plan is not None else set()
    if plan is None or all(spec.profile is None for spec in specs):
        return ""
    words = sorted({compute.rests_on(spec, plan.workload, plan.config) for spec in specs} - {"measured"})
    return "; ".join(words) or "measured"


def kendall_tau(pairs: list[tuple[float, float]]) -> float | None:
    """Kendall's tau-a: pairs in the same order minus pairs in the other, over all pairs; None for fewer than two."""
    if len(pairs) < 2:
        return None
    agree = 0
    for i, (a, b) in enumerate(pairs):
        for c, d in pairs[:i]:
            agree += ((a - c) * (b - d) > 0) - ((a - c) * (b - d) < 0)
    return agree / (len(pairs) * (len(pairs) - 1) / 2)


def regret(rows: Iterable[Row]) -> float | None:
    """How much slower than the best the configuration is that the simulator ranks first, mean over the choices of a source.

    A choice is a set of cases that differ in their configuration only (same topology but for its name, same workload).
    """
    choices: dict[object, list[Row]] = {}
    for row in rows:
        plan = row.case.plan
        if plan is not None and row.predicted_s is not None:
            key = (row.case.stack, plan.fleet.clusters, plan.fleet.trunks, plan.workload)
            choices.setdefault(key, []).append(row)
    lost = []
    for alike in choices.values():
        if len(alike) > 1:
            chosen = min(alike, key=lambda row: row.predicted_s or 0.0)
            lost.append(chosen.case.measured_s / min(row.case.measured_s for row in alike) - 1)
    return mean(lost) if lost else None


def by_source(rows: tuple[Row, ...]) -> dict[str, Summary]:
    """A summary for every source, in the order of the rows."""
    sources = dict.fromkeys(row.case.source for row in rows)
    return {source: summary(row for row in rows if row.case.source == source) for source in sources}


def macro(found: dict[str, Summary]) -> float:
    """Mean over sources of each source's mean absolute percentage error."""
    return mean(one.mape for one in found.values() if one.n)


def facts(rows: tuple[Row, ...]) -> dict[str, Any]:
    """What `holmes-sim validate --json` prints; a case that cannot be simulated is listed with its reason."""
    everything, sources = summary(rows, one_source=False), by_source(rows)
    listed = [
        {"id": r.case.id, "source": r.case.source, "stack": "default", "predicted_s": r.predicted_s,
         "measured_s": r.case.measured_s, "error": r.error} | ({"reason": r.case.reason} if r.case.reason else {})
        | ({"compute": rests_on(r)} if rests_on(r) else {})
        for r in rows
    ]  # fmt: skip
    return {
        "cases": listed,
        "summary": _summary_facts(everything)
        | {"macro": macro(sources), "by_source": {name: _summary_facts(one) for name, one in sources.items()}},
    }


def _summary_facts(one: Summary) -> dict[str, Any]:
    values = {name: getattr(one, name) for name in ("n", "left_out", "mape", "median_ape", "bias", "kendall_tau", "regret")}
    return {name: None if value != value else value for name, value in values.items()}
