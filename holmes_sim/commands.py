"""What people and notebooks call: load, plan, simulate. One short function each; the command line stands on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from planner import search, strategies
from planner.question import Question, Wishes
from planner.reasons import Verdict, verdicts
from planner.search import Row
from planner.workshop import Workshop
from sim import compute, documents, folding, planfile, profile, topology
from sim.engine import simulate as play
from sim.errors import Infeasible, PlanError, TopologyError
from sim.explain import Explanation
from sim.explain import explain as account
from sim.model import Workload
from sim.plan import Plan, Prediction
from sim.report import PlaceReport, places, predict
from sim.timeline import Timeline, from_json
from sim.topology import Topology

BASELINES = ("megatron", "holmes")
JUDGED = 24
"""Layouts that lost and have a verdict, the promising ones first."""
REPORT_FORMAT = "holmes-sim/report/1"


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, what happened in its simulated step, and the published strategies beside it."""

    plan: Plan
    timeline: Timeline
    places: tuple[PlaceReport, ...]
    baselines: tuple[Row, ...]
    seconds: float
    interrupted: bool = False
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """What each strategy answers to one question: rows in the order asked, fewer than asked where Ctrl-C came."""

    question: Question
    asked: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def ranked(self) -> tuple[tuple[str, Plan, Prediction], ...]:
        """(strategy, plan, prediction) of those that found a plan, the fastest first."""
        found = [(row.name, row.plan, row.plan.prediction) for row in self.rows if row.plan and row.plan.prediction]
        return tuple(sorted(found, key=lambda item: item[2].step_s))

    @property
    def without(self) -> tuple[Row, ...]:
        """Rows that have no plan."""
        return tuple(row for row in self.rows if row.plan is None)

    @property
    def note(self) -> str:
        """What Ctrl-C left undone, in a line; empty where it did not come."""
        cut = [f"the plan of {row.name} is the best so far" for row in self.rows if row.interrupted]
        missing = self.asked[len(self.rows) :]
        cut += [f"without an answer: {', '.join(missing)}"] if missing else []
        return f"Interrupted: {'; '.join(cut)}." if cut else ""

    def facts(self) -> dict[str, Any]:
        """The rows as plain data; what a strategy without a plan cannot have is None."""
        best = self.ranked[0][2].step_s if self.ranked else None
        return {"rows": [_row_facts(row, best) for row in self.rows], "interrupted": bool(self.note)}


def _row_facts(row: Row, best: float | None) -> dict[str, Any]:
    numbers: dict[str, Any] = dict.fromkeys(
        ("step_s", "samples_per_s", "tokens_per_s_per_device", "upper_bound_fraction", "slower_than_best")
    )
    if row.plan is not None and row.plan.prediction is not None and best is not None:
        promised = row.plan.prediction
        numbers = {key: getattr(promised, key) for key in ("step_s", "samples_per_s")}
        numbers["tokens_per_s_per_device"] = tokens_per_device(row.plan, promised)
        numbers["upper_bound_fraction"] = promised.upper_bound_fraction
        numbers["slower_than_best"] = promised.step_s / best - 1
    return {"name": row.name, **numbers, "planning_s": row.planning_s, "reason_if_none": reason(row) or None}


def tokens_per_device(plan: Plan, promised: Prediction) -> float:
    """Tokens a second and device of the fleet: devices that a plan leaves idle count, for they are paid for."""
    return promised.tokens_per_s / plan.fleet.devices


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated step: its timeline, the numbers, and what the simulation took."""

    plan: Plan
    timeline: Timeline
    prediction: Prediction
    places: tuple[PlaceReport, ...]
    seconds: float
    classes: int

    def facts(self) -> dict[str, Any]:
        """The report as plain data (format holmes-sim/report/1)."""
        return {
            "format": REPORT_FORMAT,
            "report": asdict(self.prediction) | {"peak_memory_bytes": list(self.prediction.peak_memory_bytes)},
            "simulation": {
                "seconds": self.seconds,
                "events": self.timeline.events,
                "ranks": self.plan.config.world_size,
                "classes": self.classes,
            },
        }


def topologies_folder() -> Path:
    """Where the shipped topologies lie: in the package once installed, beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "topologies"
    return inside if inside.is_dir() else package.parent / "topologies"


def shipped_topologies() -> tuple[str, ...]:
    """Names of the shipped topologies, sorted; those of a folder inside bear its name (`peers/amp-16`)."""
    folder = topologies_folder()
    return tuple(sorted(path.relative_to(folder).as_posix().removesuffix(".yaml") for path in folder.rglob("*.yaml")))


def load(name: str | Path, measured: str | Path | None = None) -> Topology:
    """A topology from a file, or a shipped one by its name; with a measured profile (name or file). Raises TopologyError."""
    shipped = topologies_folder() / f"{name}.yaml"
    found = topology.load(shipped if str(name) in shipped_topologies() and not Path(name).exists() else name)
    return topology.profiled(found, profile.load(measured)) if measured is not None else found


def read_plan(path: str | Path, measured: str | Path | None = None) -> Plan:
    """A plan from plan.json; with a measured profile (name or file) in place of its own. Raises PlanError, TopologyError."""
    return with_profile(planfile.load(path), measured)


def with_profile(given: Plan, measured: str | Path | None) -> Plan:
    """The plan with a measured profile (name or file) in place of its own; itself without one. Raises TopologyError."""
    if measured is None:
        return given
    return replace(given, topology=topology.profiled(given.topology, profile.load(measured)))


def read(path: str | Path) -> Plan | Timeline:
    """A plan or a timeline, whichever the file holds. Raises PlanError, TimelineError, TopologyError."""
    text = documents.read_text(path, PlanError)
    return from_json(text, str(path)) if '"traceEvents"' in text else planfile.from_text(str(path), text)


def rests_on(given: Plan) -> tuple[str, ...]:
    """What the compute of a plan's devices rests on, a line for each kind; empty where none of them is profiled."""
    specs = dict.fromkeys(given.fleet.spec(device) for device in given.placement)
    if all(spec.profile is None for spec in specs):
        return ()
    return tuple(f"Compute of {spec.name}: {compute.rests_on(spec, given.workload, given.config)}." for spec in specs)


def workload_of(
    where: Topology, model: str | None = None, global_batch_size: int | None = None, seq_len: int | None = None
) -> Workload:
    """The workload of a topology, with what is given here in place of its own. Raises TopologyError where none is given."""
    own = where.workload
    if own is None and (model is None or global_batch_size is None or seq_len is None):
        raise TopologyError(
            f"topology {where.name} has no workload; give --model, --global-batch-size and --seq-len, "
            f"or add a workload to the file"
        )
    return Workload(
        model=topology.load_model(model) if model is not None else _of(own).model,
        global_batch_size=global_batch_size if global_batch_size is not None else _of(own).global_batch_size,
        seq_len=seq_len if seq_len is not None else _of(own).seq_len,
        precision=own.precision if own is not None else "bf16",
    )


def _of(workload: Workload | None) -> Workload:
    assert workload is not None
    return workload


def plan(
    where: Topology,
    workload: Workload | None = None,
    strategy: str = search.DEFAULT,
    wishes: Wishes | None = None,
    time_limit: float = 50.0,
    progress: Callable[[str], None] = lambda text: None,
    explain: bool = False,
    objective: str = "step-time",
) -> Planned:
    """Plan a topology, and say what the published strategies would give. Raises Infeasible, PlanError, TopologyError.

    With `explain` promising shapes that lost have a verdict, and those that lack memory. The objective is step-time, cost
    (per token, where devices have prices) or energy (per token, where they have watts).
    """
    started = time.perf_counter()
    question = Question(where, workload or workload_of(where), wishes or Wishes(), time_limit)
    workshop = Workshop(question, progress)
    found, beside = search.plan_for(objective, question, strategy, workshop)
    rows = beside + tuple(search.row(question, name, workshop) for name in BASELINES if name != strategy)
    timeline = play(found)
    seconds = time.perf_counter() - started
    judged = tuple(verdicts(workshop, JUDGED)) if explain else ()
    return Planned(found, timeline, places(found, timeline), rows, seconds, workshop.interrupted, judged)


def compare(
    where: Topology,
    workload: Workload | None = None,
    names: tuple[str, ...] = (),
    wishes: Wishes | None = None,
    time_limit: float = 50.0,
    progress: Callable[[str], None] = lambda text: None,
) -> Compared:
    """Plan a topology by several strategies, all of them unless some are named, each on its own.

    Raises PlanError, TopologyError; Infeasible where no strategy finds a plan, with the reason of each; KeyboardInterrupt
    where Ctrl-C came before any plan was found.
    """
    question = Question(where, workload or workload_of(where), wishes or Wishes(), time_limit)
    asked = tuple(dict.fromkeys(names or strategies.names()))
    found = Compared(question, asked, search.compare(question, asked, progress))
    if not found.ranked:
        if found.note:
            raise KeyboardInterrupt
        raise Infeasible(_why_none(found.rows))
    return found


def _why_none(rows: tuple[Row, ...]) -> str:
    """The reason that all give, or a line for each strategy."""
    said = {row.reason for row in rows}
    return said.pop() if len(said) == 1 else "\n".join(f"{row.name}: {reason(row)}" for row in rows)


def reason(row: Row) -> str:
    """Why a strategy has no plan, without its own name in front."""
    return row.reason.removeprefix(f"{row.name}: ")


def simulate(given: Plan) -> Simulated:
    """Play one step of a plan."""
    started = time.perf_counter()
    folded = folding.fold(given)
    timeline = play(given, folded)
    seconds = time.perf_counter() - started
    prediction = predict(given, timeline)
    return Simulated(given, timeline, prediction, places(given, timeline), seconds, len(folded.representatives))


def explain(run: Simulated) -> Explanation:
    """Why a simulated step takes what it takes: seconds by stage, and the critical path."""
    return account(run.plan, run.timeline)
