"""Plans with attention and experts on two sets of ranks, from the Python API: read and simulate them."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holmes_sim import commands, islands
from holmes_sim.results import SAME
from sim.disaggregation import memory
from sim.disaggregation.plan import DisaggregatedPlan, DisaggregatedPrediction, predict
from sim.engine.timeline import Timeline
from sim.formats import disaggregatedfile
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.results.disaggregated_timeline import disaggregated_timeline
from sim.units import Bytes, Seconds, time_text

REPORT_FORMAT = "holmes-sim/disaggregated-report/1"


@dataclass(frozen=True, slots=True)
class SimulatedDisaggregated:
    """A simulated step of a plan with two sets of ranks; `seconds` of the simulation."""

    plan: DisaggregatedPlan
    prediction: DisaggregatedPrediction
    seconds: Seconds

    @property
    def confirmed(self) -> bool | None:
        """Whether the step is the one that the plan predicts, but for rounding; None if it predicts none."""
        known = self.plan.prediction
        return None if known is None else math.isclose(known.step_s, self.prediction.step_s, rel_tol=SAME)

    @property
    def room(self) -> tuple[Bytes, Bytes]:
        """Bytes that an attention rank, and an expert rank, may take."""
        return memory.room(self.plan.stage, self.plan.stage.attention), memory.room(self.plan.stage, self.plan.stage.experts)

    @property
    def timeline(self) -> Timeline:
        """The timeline of the step; of a step of many rounds, of the first of them (`sim.disaggregation.rounds`)."""
        return disaggregated_timeline(self.plan)

    def facts(self) -> dict[str, Any]:
        """The report as plain data (format holmes-sim/disaggregated-report/1)."""
        report = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self.prediction).items()}
        return {
            "format": REPORT_FORMAT,
            "layout": str(self.plan.stage),
            "report": report,
            "memory_room_bytes": list(self.room),
            "simulation_seconds": self.seconds,
            "confirmed": self.confirmed,
        }

    def __repr__(self) -> str:
        numbers = self.prediction
        return f"{self.plan!r}: a step of {time_text(numbers.step_s)}, {numbers.tokens_per_s:,.0f} tokens/s"


def simulate_disaggregated(plan: DisaggregatedPlan) -> SimulatedDisaggregated:
    """Simulate a step. Raises NoRoute where nothing joins the ranks."""
    begun = time.perf_counter()
    found = predict(plan.stage)
    return SimulatedDisaggregated(plan, found, time.perf_counter() - begun)


def read_disaggregated(path: str | Path) -> DisaggregatedPlan:
    """Read a plan with two sets of ranks. Raises PlanError."""
    return disaggregatedfile.load(path)


def read_any_plan(path: str | Path) -> Plan | IslandsPlan | DisaggregatedPlan:
    """Read a plan, a plan of islands, or one with two sets of ranks, whichever the file contains. Raises PlanError."""
    text = commands.plan_text(path)
    if disaggregatedfile.is_disaggregated(text):
        return disaggregatedfile.from_text(str(path), text)
    return islands.read_either(path)
