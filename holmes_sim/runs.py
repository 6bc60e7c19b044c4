"""Measured runs of plans: folders with a plan and what its run took, as `holmes-sim plan --shortlist` prepares them.

A folder of runs has one folder for each plan. Next to `plan.json` there is one of these: `measured.yaml` (`step_s: 4.9`, the
median seconds of a step, or `outcome: failed` for a run that ended for want of memory), `timeline.json` (written by
`holmes-sim run`), or a log of Megatron-LM or torchtitan (`*.log`, `*.out` or `*.txt`). A plan without any of them was not
measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from holmes_sim import run_logs
from holmes_sim.cases import Case, MeasuredFacts
from holmes_sim.posterior import log_steps
from sim.engine import timeline
from sim.errors import HolmesError, TimelineError, TopologyError
from sim.formats import documents, planfile, stacks
from sim.formats.edits import edited
from sim.hardware.stack import DEFAULT, Stack
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from sim.plan.under_stack import config_under
from sim.units import Seconds

PLAN, MEASURED, TIMELINE, LOGS = "plan.json", "measured.yaml", "timeline.json", (".log", ".out", ".txt")


@dataclass(frozen=True, slots=True)
class Run:
    """A plan and what its run took. `name` is its folder; `step_s` is None if it was not measured, or if it `failed` for want
    of memory; `source` says where the step time was read, or which logs have none."""

    name: str
    plan: Plan
    step_s: Seconds | None = None
    failed: bool = False
    source: str = ""

    def facts(self) -> dict[str, Any]:
        """Plain data, as `holmes-sim calibrate --runs --json` prints it."""
        outcome = "failed" if self.failed else "not measured" if self.step_s is None else "ran"
        return {"folder": self.name, "outcome": outcome, "step_s": self.step_s, "source": self.source}


def read(folders: Iterable[str | Path]) -> tuple[Run, ...]:
    """All plans of folders of runs, with what they took. Raises HolmesError if there is no plan, or a measurement is wrong."""
    found: list[Run] = []
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise HolmesError(f"{folder}: no such folder; holmes-sim plan TOPO --shortlist 5 -o {folder} writes one")
        inside = [path for path in sorted(folder.iterdir()) if (path / PLAN).is_file()]
        if not inside:
            raise HolmesError(
                f"{folder}: no folder inside has a {PLAN}; holmes-sim plan TOPO --shortlist 5 writes such folders"
            )
        found += map(_run, inside)
    return tuple(found)


def measured(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The runs with a step time. Raises HolmesError if there is none."""
    runs = tuple(runs)
    found = tuple(run for run in runs if run.step_s is not None)
    if not found:
        first = runs[0].name
        raise HolmesError(f"no plan was measured; write what one took, such as `step_s: 4.9`, to {first}/{MEASURED}")
    return found


def cases(runs: Iterable[Run], stack: str) -> tuple[Case, ...]:
    """The measured runs as cases of one software stack, whose plans have the default stack."""
    return tuple(Case(run.name, "runs", stack, run.step_s, without_stack(run.plan)) for run in measured(runs))


def default_topology(topology: Topology) -> Topology:
    """The topology with the default software stack."""
    return topology if topology.stack == DEFAULT else edited(topology, {"stack": None})


def without_stack(plan: Plan) -> Plan:
    """The plan with the default software stack in place of its own."""
    if plan.topology.stack == DEFAULT:
        return plan
    return replace(plan, topology=default_topology(plan.topology), config=config_under(DEFAULT, plan))


def start(name: str | None, runs: Sequence[Run] = ()) -> Stack:
    """The stack around which runs are fitted: one of the catalogue or a file by its name, or the default numbers with the facts
    of the stack of the plans (None).

    Raises TopologyError, and HolmesError if the plans have unlike facts."""
    if name is None:
        facts = [run.plan.topology.stack.unfitted() for run in runs] or [DEFAULT]
        unlike = next((run.name for run, one in zip(runs, facts, strict=False) if one != facts[0]), None)
        if unlike is not None:
            raise HolmesError(f"{unlike}: its plan has other facts of the stack than {runs[0].name}; name one with --stack")
        return facts[0]
    return stacks.load(name).stack()


def predicted(runs: Iterable[Run], stack: Stack) -> tuple[Seconds, ...]:
    """Simulated seconds of a step of each measured run with a stack."""
    plans = [without_stack(run.plan) for run in measured(runs)]
    return tuple(np.exp(log_steps(plans, [stack] * len(plans))).tolist())


def _run(folder: Path) -> Run:
    plan = planfile.load(folder / PLAN)
    found = list(_measurements(folder, plan))
    if len(found) > 1:
        names = " and ".join(run.source.split(",")[0] for run in found)
        raise HolmesError(f"{folder}: {names} both have a measurement; keep one")
    unread = ", ".join(path.name for path in _logs(folder) if path.suffix != ".txt")  # a launch has text files too
    return found[0] if found else Run(str(folder), plan, source=f"no step time in {unread}" if unread else "")


def _measurements(folder: Path, plan: Plan) -> Iterator[Run]:
    """A run for each file of a plan's folder that has a measurement."""
    name = str(folder)
    if (path := folder / MEASURED).is_file():
        document = documents.parse(str(path), documents.read_text(path))
        facts = documents.check(document, MeasuredFacts)
        if facts.outcome == "ran":
            right = "write the seconds of a step (step_s: 4.9), or outcome: failed"
            raise TopologyError(document.fault(("outcome",), f"ran; {right}"))
        yield Run(name, plan, facts.step_s, facts.outcome == "failed", MEASURED)
    if (path := folder / TIMELINE).is_file():
        yield Run(name, plan, _timeline_step(path, plan), source=TIMELINE)
    for path in _logs(folder):
        logged = run_logs.step_of(path.read_text(encoding="utf-8", errors="replace"), plan, str(path))
        if logged is not None:
            lines = "1 line" if logged.lines == 1 else f"median of {logged.lines} lines"
            yield Run(name, plan, logged.seconds, source=f"{path.name}, {lines}")


def _logs(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.suffix in LOGS and path.is_file()]


def _timeline_step(path: Path, plan: Plan) -> Seconds:
    """Seconds of the measured step of a timeline of the plan, at the speed of the real machines."""
    read = timeline.from_json(documents.read_text(path, TimelineError), str(path))
    if read.origin != "measured":
        raise TimelineError(f"{path}: origin: {read.origin}; a measured timeline is expected (holmes-sim run writes one)")
    own = planfile.digest(plan)
    if read.plan_digest != own:
        raise TimelineError(f"{path}: plan_digest: {read.plan_digest!r} belongs to another plan; that of {PLAN} is {own!r}")
    return read.step_s / read.scale
