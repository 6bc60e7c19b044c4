"""Validate the simulator against measured runs: errors of the step time by source, rank correlation, regret.

Every case is simulated with its own configuration and one of three sets of constants: "default", one set for all cases;
"fitted", the software stack of the case if one was fitted; "honest", a fit of that stack without the group of the case (the
default if there is none). The group is the case's model family (or device types, or network), or with "honest-tp", "honest-pp"
and "honest-nodes" its tensor-parallel degree, pipeline degree and number of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from holmes_sim import cases, intervals
from holmes_sim.cases import Case
from holmes_sim.processes import each
from sim.engine.engine import simulate
from sim.errors import HolmesError
from sim.formats import catalog, profile
from sim.hardware.stack import DEFAULT, Stack
from sim.kernels import compute
from sim.plan.plan import Plan
from sim.plan.under_stack import with_stack

FORMAT = "holmes-sim/validation/1"
HELD_OUT = {"honest": "model", "honest-tp": "tp", "honest-pp": "pp", "honest-nodes": "nodes"}
"""Sets of constants that a fit without the case gives -> axis of the group that is held out (`holmes_sim.calibration`)."""
STACKS = ("default", "fitted", *HELD_OUT)


@dataclass(frozen=True, slots=True)
class Row:
    """A case and its simulated step time; `predicted_s` is None if the case cannot be simulated.

    `constants` names the set of constants that was used; `seen` says whether they were fitted to this case.
    """

    case: Case
    predicted_s: float | None
    constants: str = "default"
    seen: bool = False

    @property
    def error(self) -> float | None:
        """predicted / measured - 1: negative if the simulator is optimistic."""
        measured = self.case.measured_s
        return None if self.predicted_s is None or measured is None else self.predicted_s / measured - 1

    @property
    def inside(self) -> bool | None:
        """Whether the measured step is inside the range of its prediction (`holmes_sim.intervals`); None if one is missing."""
        if self.seconds is None or self.case.plan is None:
            return None
        predicted, measured = self.seconds
        low, high = intervals.ratios(self.constants != "default", self.case.plan.nodes > 1)
        return low <= measured / predicted <= high

    @property
    def seconds(self) -> tuple[float, float] | None:
        """(predicted, measured) seconds of the step; None if one is missing."""
        predicted, measured = self.predicted_s, self.case.measured_s
        return None if predicted is None or measured is None else (predicted, measured)


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors of a set of rows: number of cases, cases left out, mean and median absolute error, mean error (bias).

    `coverage` is the share of measured steps inside the range of their prediction; None if no case was simulated.
    `kendall_tau` and `regret` compare cases of one source; None if there is nothing to compare.
    """

    n: int
    left_out: int
    mape: float
    median_ape: float
    bias: float
    coverage: float | None
    kendall_tau: float | None
    regret: float | None


def folder() -> Path:
    """Folder of the shipped cases: inside the package if installed, beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "validation"
    return inside if inside.is_dir() else package.parent / "validation"


def read(paths: Iterable[str | Path], measured: str | Path | None = None) -> tuple[Case, ...]:
    """Read all cases of files and folders, with an optional profile (name or file) for their devices.

    Files of a folder are read in the order of their names. Raises TopologyError; HolmesError if there are no cases."""
    given = profile.load(measured) if measured is not None else None
    files: list[Path] = []
    for path in map(Path, paths):
        files += sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    found = tuple(case for file in files for case in cases.load(file, given))
    if not found:
        raise HolmesError(f"no cases in {', '.join(map(str, paths))}; case files end in .yaml")
    return found


def stack_of(case: Case, mode: str) -> tuple[str, Stack, bool]:
    """(name, stack, whether it was fitted to this case) for a case. Raises HolmesError for an unknown mode.

    Stacks are fitted with formulas, so a case with measured compute (`--profile`) uses the default. The facts of a stack are
    known and not fitted, so a prediction with the default constants keeps them. A stack that is not in the catalogue has the
    facts of another version of the same software, if there is one (`catalog.stack_family`).
    """
    if mode not in STACKS:
        raise HolmesError(f"stack {mode!r} is unknown; known: {', '.join(STACKS)}")
    known = catalog.stack_family(case.stack)
    if known is None or _is_measured(case):
        return "default", DEFAULT, False
    facts = catalog.stack_facts(known)
    if mode == "default" or known != case.stack or not facts.cases:
        return "default", facts.unfitted(), False
    if mode == "fitted":
        return case.stack, facts.stack(facts.fitted), case.id in facts.cases
    for one in facts.held_out:
        if one.axis == HELD_OUT[mode] and case.id in one.cases:
            return f"{case.stack} without {one.group}", facts.stack(one.fitted), False
    return ("default", facts.unfitted(), False) if case.id in facts.cases else (case.stack, facts.stack(facts.fitted), False)


def validate(
    found: tuple[Case, ...], mode: str = "default", progress: Callable[[str], None] = lambda text: None
) -> tuple[Row, ...]:
    """Simulate every case with a plan and a measured step, in several processes if there are many.

    Cases without a measured step, which tell whether a run failed for want of memory, have no row. Raises HolmesError for an
    unknown mode."""
    found = tuple(case for case in found if case.measured_s is not None)
    stacks = [stack_of(case, mode) for case in found]
    pairs = [(stack, case.plan) for (_, stack, _), case in zip(stacks, found, strict=True) if case.plan is not None]
    results = iter(each(_step, pairs, progress))
    return tuple(
        Row(case, next(results) if case.plan is not None else None, name, seen)
        for (name, _, seen), case in zip(stacks, found, strict=True)
    )


def _step(pair: tuple[Stack, Plan]) -> float:
    return simulate(with_stack(*pair)).step_s


def summary(rows: Iterable[Row], one_source: bool = True) -> Summary:
    """Errors of rows; Kendall's tau and regret only if all rows have one source (`one_source`)."""
    rows = tuple(rows)
    errors = [row.error for row in rows if row.error is not None]
    pairs = [row.seconds for row in rows if row.seconds is not None]
    inside = [row.inside for row in rows if row.inside is not None]
    sizes = [abs(error) for error in errors] or [float("nan")]
    return Summary(
        n=len(errors),
        left_out=len(rows) - len(errors),
        mape=mean(sizes),
        median_ape=median(sizes),
        bias=mean(errors) if errors else float("nan"),
        coverage=mean(inside) if inside else None,
        kendall_tau=kendall_tau(pairs) if one_source else None,
        regret=regret(rows) if one_source else None,
    )


def _is_measured(case: Case) -> bool:
    """Whether a profile replaces the formulas on some device of a case."""
    plan = case.plan
    return plan is not None and any(compute.measured(spec, plan.workload, plan.config) is not None for spec in plan.specs)


def rests_on(row: Row) -> str:
    """Source of the compute seconds: "measured" if all devices are profiled, else why not; empty without a profile."""
    plan = row.case.plan
    if plan is None or all(spec.profile is None for spec in plan.specs):
        return ""
    words = sorted({compute.rests_on(spec, plan.workload, plan.config) for spec in plan.specs} - {"measured"})
    return "; ".join(words) or "measured"


def kendall_tau(pairs: list[tuple[float, float]]) -> float | None:
    """Kendall's tau-a: (concordant - discordant pairs) / all pairs; None for fewer than two cases."""
    if len(pairs) < 2:
        return None
    agree = 0
    for i, (a, b) in enumerate(pairs):
        for c, d in pairs[:i]:
            agree += ((a - c) * (b - d) > 0) - ((a - c) * (b - d) < 0)
    return agree / (len(pairs) * (len(pairs) - 1) / 2)


def regret(rows: Iterable[Row]) -> float | None:
    """Mean regret of a source: measured slowdown of the configuration that the simulator ranks first, against the best one.

    The mean is over choices: sets of cases with equal stack, topology (except its name) and workload that differ in their
    configuration only. None if there is no choice.
    """
    choices: dict[object, list[tuple[float, float]]] = {}
    for row in rows:
        plan = row.case.plan
        if plan is not None and row.seconds is not None:
            key = (row.case.stack, plan.fleet.clusters, plan.fleet.trunks, plan.workload)
            choices.setdefault(key, []).append(row.seconds)
    lost = [min(options)[1] / min(measured for _, measured in options) - 1 for options in choices.values() if len(options) > 1]
    return mean(lost) if lost else None


def by_source(rows: tuple[Row, ...]) -> dict[str, Summary]:
    """Summary of every source, in the order of the rows."""
    sources = dict.fromkeys(row.case.source for row in rows)
    return {source: summary(row for row in rows if row.case.source == source) for source in sources}


def macro(found: dict[str, Summary]) -> float:
    """Mean over sources of the mean absolute error of each source; NaN if no case was simulated."""
    return mean([one.mape for one in found.values() if one.n] or [float("nan")])


def macro_bias(found: dict[str, Summary]) -> float:
    """Mean over sources of the mean signed error of each source; NaN if no case was simulated."""
    return mean([one.bias for one in found.values() if one.n] or [float("nan")])


def macro_coverage(found: dict[str, Summary]) -> float:
    """Mean over sources of the share of measured steps inside the range of their prediction; NaN if no case was simulated."""
    return mean([one.coverage for one in found.values() if one.coverage is not None] or [float("nan")])


def by_fit(rows: tuple[Row, ...]) -> dict[str, Summary]:
    """Summaries of the cases that the constants were fitted to ("seen"), and of the others ("unseen")."""
    split = {name: tuple(row for row in rows if row.seen is seen) for name, seen in (("seen", True), ("unseen", False))}
    return {name: summary(some, one_source=False) for name, some in split.items()}


def facts(rows: tuple[Row, ...]) -> dict[str, Any]:
    """Rows and summaries as plain data (format holmes-sim/validation/1); cases without a plan have a reason."""
    everything, sources = summary(rows, one_source=False), by_source(rows)
    listed = [
        {"id": r.case.id, "source": r.case.source, "stack": r.case.stack, "constants": r.constants, "seen": r.seen,
         "predicted_s": r.predicted_s, "measured_s": r.case.measured_s, "error": r.error}
        | ({"reason": r.case.reason} if r.case.reason else {})
        | ({"compute": rests_on(r)} if rests_on(r) else {})
        for r in rows
    ]  # fmt: skip
    return {
        "format": FORMAT,
        "cases": listed,
        "summary": summary_facts(everything)
        | _without_nan({"macro": macro(sources), "macro_bias": macro_bias(sources), "macro_coverage": macro_coverage(sources)})
        | {name: summary_facts(one) for name, one in by_fit(rows).items()}
        | {"by_source": {name: summary_facts(one) for name, one in sources.items()}},
    }


def summary_facts(one: Summary) -> dict[str, Any]:
    """A summary as plain data; a number that is not defined is None."""
    return _without_nan(asdict(one))


def _without_nan(values: dict[str, Any]) -> dict[str, Any]:
    """The values with None in place of NaN, which JSON does not have."""
    return {name: None if value != value else value for name, value in values.items()}
