"""Results of the commands: a plan, a comparison of strategies, a simulated step; as text, plain data and data frames."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from holmes_sim import exporters, frames, targets
from holmes_sim.attention_and_experts import Disaggregated
from holmes_sim.beyond import Beyond
from holmes_sim.conflicts import Price
from holmes_sim.intervals import plan_facts, step_range
from holmes_sim.resolution import is_close, why_close
from holmes_sim.unlike_replicas import UnlikeReplicas
from planner.api import Row
from planner.diagnosis.reasons import Verdict
from planner.effort import Effort
from planner.request import Request
from planner.search.mixed import is_mixed
from sim.engine.timeline import Timeline
from sim.formats import planfile
from sim.formats.config_facts import config_facts
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.results import cost_energy
from sim.results.report import PipelineRankReport
from sim.units import Seconds, time_text

if TYPE_CHECKING:
    import pandas as pd

REPORT_FORMAT, COMPARISON_FORMAT = "holmes-sim/report/1", "holmes-sim/comparison/1"
SAME = 1e-9
"""Relative difference of two steps that rounding explains. Guess."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, the timeline of its simulated step, the plans of the published strategies (`baselines`), the work of the
    search, what each requirement costs, a faster plan that no framework commonly runs (`beyond`), attention and experts on
    unlike devices (`split`) where these are faster, and what is known of unlike pipelines (`replicas`)."""

    plan: Plan
    timeline: Timeline
    pipeline_ranks: tuple[PipelineRankReport, ...]
    baselines: tuple[Row, ...]
    seconds: float
    interrupted: bool = False
    verdicts: tuple[Verdict, ...] = ()
    effort: Effort | None = None
    prices: tuple[Price, ...] = ()
    beyond: Beyond | None = None
    split: Disaggregated | None = None
    replicas: UnlikeReplicas | None = None

    @property
    def frame(self) -> pd.DataFrame:
        """Data frame with one row per pipeline rank (`frames.pipeline_ranks`)."""
        return frames.pipeline_ranks(self.plan, self.pipeline_ranks)

    def plan_facts(self) -> dict[str, Any]:
        """The plan as plain data (`sim.formats.planfile`), with what is known of unlike pipelines, which files leave out."""
        other = {"unlike_pipelines": self.replicas.facts()} if self.replicas is not None else {}
        return planfile.facts(self.plan, plan_facts(self.plan) | other)

    def __repr__(self) -> str:
        proof = self.plan.certificate
        beside = proof is not None and proof.whole_lower_bound_s is not None and not is_mixed(self.plan)
        searched = " of the searched space" if beside else ""
        return f"{self.plan!r}" + (f", at most {proof.gap:.1%} from the best{searched}" if proof else "")

    def _repr_html_(self) -> str:
        return frames.html(repr(self), self.frame)


PLURAL = {"strategy": "strategies", "target": "targets"}
"""What plans are compared by, and its plural."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Plans of several strategies for one request, in the order of `strategies`; fewer than asked if Ctrl-C was pressed.

    by: what the plans differ by, "strategy" or "target"; then `strategies` are launch targets, each with its best plan."""

    request: Request
    strategies: tuple[str, ...]
    rows: tuple[Row, ...]
    by: str = "strategy"

    @property
    def ranked(self) -> tuple[tuple[str, Plan, Prediction], ...]:
        """(strategy, plan, prediction) of the strategies with a plan, the fastest first."""
        found = [(row.name, row.plan, row.plan.prediction) for row in self.rows if row.plan and row.plan.prediction]
        return tuple(sorted(found, key=lambda item: item[2].step_s))

    @property
    def close(self) -> frozenset[str]:
        """Strategies whose plans are slower than the fastest one, but cannot be told apart from it (`resolution`)."""
        return frozenset(name for name, plan, _ in self.ranked if is_close(self.ranked[0][1], plan))

    @property
    def closeness(self) -> str:
        """One line that says why plans cannot be told apart; empty if all can."""
        others = [plan for name, plan, _ in self.ranked if name in self.close]
        return why_close((self.ranked[0][1], *others)) if others else ""

    @property
    def without(self) -> tuple[Row, ...]:
        """Rows of the strategies without a plan."""
        return tuple(row for row in self.rows if row.plan is None)

    @property
    def read_by(self) -> dict[str, str]:
        """Launch target -> programs and versions that have read its exports; empty for strategies."""
        names = (row.name for row in self.rows if row.name != targets.NONE) if self.by == "target" else ()
        return {name: exporters.get(name).READERS for name in names}

    @property
    def note(self) -> str:
        """One line that says what Ctrl-C interrupted; empty if nothing."""
        cut = [f"the plan of {row.name} is the best found so far" for row in self.rows if row.interrupted]
        missing = self.strategies[len(self.rows) :]
        cut += [f"not planned: {', '.join(missing)}"] if missing else []
        return f"Interrupted: {'; '.join(cut)}." if cut else ""

    def facts(self) -> dict[str, Any]:
        """The rows as plain data (format holmes-sim/comparison/1).

        The numbers and the layout of a strategy without a plan are None."""
        best, close = (self.ranked[0][2].step_s, self.close) if self.ranked else (None, frozenset())
        read_by = self.read_by
        rows = [_row_facts(row, best, row.name not in close) | {"read_by": read_by.get(row.name)} for row in self.rows]
        return {"format": COMPARISON_FORMAT, "rows": rows, "interrupted": bool(self.note)}

    @property
    def frame(self) -> pd.DataFrame:
        """Data frame with one row per strategy, with the keys of `facts` except those of `LAYOUT` and read_by: the fastest
        first, those without a plan last."""
        left_out = *LAYOUT, "read_by"
        rows = [{key: cell for key, cell in row.items() if key not in left_out} for row in self.facts()["rows"]]
        return frames.table(rows).sort_values("step_s", ignore_index=True, kind="stable")

    def __repr__(self) -> str:
        where = self.request.topology.name
        if not self.ranked:
            return f"{where}: none of {len(self.rows)} {PLURAL[self.by]} has a plan"
        name, _, predicted = self.ranked[0]
        plans = f"{len(self.ranked)} of {len(self.rows)} {PLURAL[self.by]} have a plan"
        return f"{where}: {plans}; {name} is the fastest, with a step of {time_text(predicted.step_s)}"

    def _repr_html_(self) -> str:
        return frames.html(repr(self), self.frame)


NUMBERS = (
    "step_s", "step_range_s", "guessed_rates", "samples_per_s", "tokens_per_s_per_device", "upper_bound_fraction",
    "slower_than_best", "told_apart_from_best",
)  # fmt: skip
"""Keys of a compared strategy that are None if it has no plan; the last one is None for the fastest plan, too."""
LAYOUT = ("config", "devices")
"""Keys of a compared strategy with its layout: the configuration, and all devices of the occupied nodes by cluster."""


def _row_facts(row: Row, best: float | None, is_apart: bool) -> dict[str, Any]:
    numbers: dict[str, Any] = dict.fromkeys(NUMBERS)
    if row.plan is not None and row.plan.prediction is not None and best is not None:
        predicted = row.plan.prediction
        numbers |= step_range(predicted.step_s, row.plan).facts()
        numbers |= {key: getattr(predicted, key) for key in ("step_s", "samples_per_s", "upper_bound_fraction")}
        numbers["tokens_per_s_per_device"] = tokens_per_device(row.plan, predicted)
        numbers["slower_than_best"] = predicted.step_s / best - 1
        numbers["told_apart_from_best"] = is_apart if predicted.step_s > best else None
    found = {"name": row.name, **numbers, "planning_s": row.planning_s, "reason_if_none": reason(row) or None}
    return found | _layout(row.plan)


def _layout(plan: Plan | None) -> dict[str, Any]:
    if plan is None:
        return dict.fromkeys(LAYOUT)
    devices = {cluster.name: count for cluster, count in cost_energy.occupied(plan)}
    return {"config": config_facts(plan.config), "devices": devices}


def tokens_per_device(plan: Plan, predicted: Prediction) -> float:
    """Tokens per second and device of the fleet. Devices that the plan does not use count as well, since they are paid for."""
    return predicted.tokens_per_s / plan.fleet.devices


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated step: its timeline and prediction, and the seconds and rank classes of the simulation."""

    plan: Plan
    timeline: Timeline
    prediction: Prediction
    pipeline_ranks: tuple[PipelineRankReport, ...]
    seconds: float
    classes: int

    @property
    def frame(self) -> pd.DataFrame:
        """Data frame with one row per pipeline rank (`frames.pipeline_ranks`)."""
        return frames.pipeline_ranks(self.plan, self.pipeline_ranks)

    @property
    def confirmed(self) -> bool | None:
        """Whether the simulation confirms the prediction of the plan (`confirms`); None if the plan has none."""
        return confirms(self.plan, self.timeline.step_s)

    @property
    def spans(self) -> pd.DataFrame:
        """Data frame with one row per span of the timeline (`frames.spans`)."""
        return frames.spans(self.timeline)

    def __repr__(self) -> str:
        numbers = self.prediction
        return (
            f"{self.plan.topology.name}: {self.plan.workload.model.name}, a simulated step of {time_text(numbers.step_s)}, "
            f"{numbers.tokens_per_s:,.0f} tokens/s, bubble {numbers.bubble_fraction:.1%}"
        )

    def _repr_html_(self) -> str:
        return frames.html(repr(self), self.frame)

    def facts(self) -> dict[str, Any]:
        """The report as plain data (format holmes-sim/report/1)."""
        ranks = self.plan.config.world_size
        found = {"seconds": self.seconds, "events": self.timeline.events, "ranks": ranks, "classes": self.classes}
        return report_facts(self.plan, self.prediction, found, self.confirmed)


def report_facts(
    plan: Plan | PipelinesPlan, prediction: Prediction, simulation: dict[str, Any], confirmed: bool | None
) -> dict[str, Any]:
    """The report of a simulated step as plain data (format holmes-sim/report/1); `simulation`: what it took."""
    return {
        "format": REPORT_FORMAT,
        "report": asdict(prediction) | {"peak_memory_bytes": list(prediction.peak_memory_bytes)},
        **step_range(prediction.step_s, plan).facts(),
        "simulation": simulation,
        "confirmed": confirmed,
    }


def confirms(plan: Plan | PipelinesPlan, step_s: Seconds) -> bool | None:
    """Whether a simulated step has the seconds that a plan predicts, but for rounding; None without a prediction."""
    return None if plan.prediction is None else math.isclose(plan.prediction.step_s, step_s, rel_tol=SAME)


def reason(row: Row) -> str:
    """Why a strategy has no plan, without the name of the strategy in front; empty if it has one."""
    return row.reason.removeprefix(f"{row.name}: ")
