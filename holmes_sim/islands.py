"""Plans of islands from the Python API: plan them, read them, simulate them, and compare sync strategies by trunk bandwidth."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from holmes_sim import commands, frames, islands_conflicts, requirements, targets
from holmes_sim.conflicts import Required
from holmes_sim.islands_targets import check_launch, launch_fault
from holmes_sim.pins import Pins, pinned
from planner.islands.allowed_sync import parse
from planner.islands.node_ranges import partition_text
from planner.islands.search import SyncAnswer, plan_with_sync
from planner.islands.sync_rows import SyncRow
from planner.request import Request, Wishes
from sim import aggregation
from sim.disaggregation.plan import DisaggregatedPlan
from sim.engine.timeline import Timeline
from sim.errors import Infeasible, OptionError
from sim.formats import disaggregatedfile, islandsfile, planfile
from sim.hardware.topology import Topology
from sim.islands.outer_timeline import OuterTimeline
from sim.islands.prediction import is_on_host, outer_state_bytes, predict
from sim.islands.token_worth import TokenWorth, token_worth
from sim.plan.islands import IslandsPlan, IslandsPrediction
from sim.plan.plan import Plan
from sim.units import Seconds
from sim.workload.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

REPORT_FORMAT = "holmes-sim/islands-report/1"


@dataclass(frozen=True, slots=True)
class PlannedIslands:
    """The best plan with the allowed sync strategies, and the rows that it was chosen from; `seconds` of planning."""

    answer: SyncAnswer
    seconds: float

    @property
    def plan(self) -> Plan | IslandsPlan:
        """The best plan: of islands, or exact."""
        return self.answer.best.plan

    def rows(self) -> tuple[SyncRow, ...]:
        """The exact plans (one where the best of the whole fleet uses one island only), then the best row of each strategy."""
        exact = {row.islands: row for row in (self.answer.exact, self.answer.alone) if row is not None}
        if len(exact) == 1 and self.answer.exact is not None and self.answer.alone is not None:
            faster = max((self.answer.exact, self.answer.alone), key=lambda row: row.tokens_per_s)
            return (faster, *self.answer.rows)
        return (*exact.values(), *self.answer.rows)

    @property
    def frame(self) -> pd.DataFrame:
        """Data frame with one row for each of `rows`: sync, islands, tokens/s, worth of a token, effective tokens/s, price."""
        return frames.table([_cells(row) for row in self.rows()])

    def __repr__(self) -> str:
        best = self.answer.best
        return f"{self.plan.topology.name}: sync {best.sync}, {best.tokens_per_s:,.0f} tokens/s"


@dataclass(frozen=True, slots=True)
class SimulatedIslands:
    """Simulated outer periods of a plan of islands, and what a token is worth."""

    plan: IslandsPlan
    timeline: OuterTimeline
    prediction: IslandsPrediction
    worth: TokenWorth | None
    seconds: float

    def facts(self) -> dict[str, Any]:
        """The report as plain data (format holmes-sim/islands-report/1)."""
        report = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self.prediction).items()}
        return {
            "format": REPORT_FORMAT,
            "sync": asdict(self.plan.sync),
            "price": self.plan.sync.price,
            "report": report,
            "token_worth": worth_facts(self.worth),
            "robustness": robustness_facts(self.plan),
            "outer_state": {"bytes": list(outer_state_bytes(self.plan)), "on_host": is_on_host(self.plan)},
            "simulation": {"seconds": self.seconds, "events": self.timeline.events},
        }

    def __repr__(self) -> str:
        numbers = self.prediction
        return f"{self.plan.topology.name}: sync {self.plan.sync}, {numbers.tokens_per_s:,.0f} tokens/s, MFU {numbers.mfu:.1%}"


def plan_islands(
    where: Topology,
    workload: Workload | None = None,
    sync: str = "any",
    wishes: Wishes | None = None,
    time_limit: float = 50.0,
    progress: Callable[[str], None] = lambda text: None,
    target: str = targets.ANY,
    **pins: Unpack[Pins],
) -> PlannedIslands:
    """Plan a topology with a sync strategy between islands: the text of `plan --sync`, such as "any" or "local-steps<=64".

    `pins` and requirements on the layout hold for the plan of each island, those of devices, rent, cost and days for all
    together. `target` must be able to run it, and, if it is one by name, to launch the islands together.

    Raises OptionError, also for requirements that islands cannot have, and Infeasible where there is no plan."""
    begun = time.perf_counter()
    wishes = pinned("plan_islands", wishes, pins)
    try:
        answer = search(where, workload, sync, wishes, time_limit, target, progress)
    except Infeasible as error:
        if not requirements.written(where):
            raise
        left = max(time_limit - (time.perf_counter() - begun), 0.0)
        required = Required(where, workload or commands.workload_of(where), wishes, target)
        raise islands_conflicts.explained(required, parse(sync), error, left, progress) from None
    return PlannedIslands(answer, time.perf_counter() - begun)


def search(
    where: Topology,
    workload: Workload | None,
    sync: str,
    wishes: Wishes | None,
    time_limit: float,
    target: str = targets.ANY,
    progress: Callable[[str], None] = lambda text: None,
) -> SyncAnswer:
    """The search of `plan_islands`, which does not explain why there is no plan."""
    allowed = parse(sync)
    request = request_of(where, workload, wishes, time_limit, target)
    check_launch(where, target, allowed)
    return plan_with_sync(request, allowed, progress, launch_fault(where, target))


def request_of(
    where: Topology, workload: Workload | None, wishes: Wishes | None, time_limit: float, target: str = targets.ANY
) -> Request:
    """The planning request of a topology whose clusters may be islands. Raises OptionError."""
    return requirements.request(where, workload or commands.workload_of(where), wishes, time_limit, target)


def simulate_islands(plan: IslandsPlan, inner: tuple[Seconds, ...] = ()) -> SimulatedIslands:
    """Simulate outer periods of a plan of islands. `inner`: seconds of an inner step of each island, if they are known.

    Raises OptionError for another number of them."""
    if inner and len(inner) != len(plan.islands):
        raise OptionError(f"simulate_islands: inner: {len(inner)} given, one for each of {len(plan.islands)} islands is needed")
    begun = time.perf_counter()
    timeline, prediction = predict(plan, inner)
    return SimulatedIslands(plan, timeline, prediction, token_worth(plan), time.perf_counter() - begun)


def read_islands(path: str | Path) -> IslandsPlan:
    """Read a plan of islands. Raises PlanError, TopologyError."""
    return islandsfile.load(path)


def read_either(path: str | Path) -> Plan | IslandsPlan:
    """Read a plan, or a plan of islands, whichever the file contains. Raises PlanError, TopologyError."""
    text = commands.plan_text(path)
    return islandsfile.from_text(str(path), text) if islandsfile.is_islands(text) else planfile.from_text(str(path), text)


def read_any(what: str) -> Topology | Plan | IslandsPlan | DisaggregatedPlan | Timeline:
    """Read what a JSON file contains, or a topology from any other file or by its name. Raises HolmesError."""
    if not what.endswith(".json"):
        return commands.load(what)
    text = commands.plan_text(what)
    if disaggregatedfile.is_disaggregated(text):
        return disaggregatedfile.from_text(what, text)
    return islandsfile.from_text(what, text) if islandsfile.is_islands(text) else commands.read(what)


def _cells(row: SyncRow) -> dict[str, Any]:
    """A row of the data frame."""
    return {
        "sync": row.sync,
        "islands": partition_text(row.islands),
        "tokens_per_s": row.tokens_per_s,
        "token_worth": None if row.worth is None else row.worth.expected,
        "effective_tokens_per_s": row.effective,
        "price": row.price,
    }


def robustness_facts(plan: IslandsPlan) -> dict[str, Any] | None:
    """How many wrong islands the aggregation withstands, and its noise, as plain data; None for the mean."""
    if plan.sync.aggregation == "mean":
        return None
    how, islands = aggregation.get(plan.sync.aggregation), len(plan.islands)
    return {"withstands": how.tolerated(islands), "efficiency": how.efficiency(islands)}


def worth_facts(worth: TokenWorth | None) -> dict[str, Any] | None:
    """What a token is worth as plain data; None if it is unknown."""
    return None if worth is None else asdict(worth)
