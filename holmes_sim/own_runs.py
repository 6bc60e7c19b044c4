"""The Python API of a loop with reality: plans to measure, and a software stack fitted to what they took.

listed = hs.shortlist(topology, 5)
listed.save("shortlist")                           # a launch of each plan; measure some of them
hs.calibrate(["shortlist"]).save("mine.yaml")
hs.plan(hs.edited(topology, {"stack": "mine.yaml"}))
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from holmes_sim import calibration, commands, files, frames, proposals, requirements, runs, shortlist_folder
from holmes_sim.calibration import Fit
from holmes_sim.launching import folder as launch_folder
from holmes_sim.pins import Pins, pinned
from holmes_sim.proposals import Proposals, Proposed
from holmes_sim.runs import Run
from planner.request import Request, Wishes
from sim.errors import OptionError, TopologyError
from sim.hardware.stack import Stack
from sim.hardware.topology import Topology
from sim.units import Seconds, time_text

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "holmes-sim/own-calibration/1"


@dataclass(frozen=True, slots=True)
class Shortlist:
    """Plans to measure, the first choice first; `proposals` also has the best known plan. `measured`: folders of earlier runs.

    Each of `plans` has its `plan`, the predicted and the expected seconds of a step `step_s` and `expected_s`, the range
    `range_s` of 80 % of runs, and `why` it is on the list."""

    request: Request
    proposals: Proposals
    measured: tuple[Path, ...] = ()

    @property
    def plans(self) -> tuple[Proposed, ...]:
        """The plans to measure."""
        return self.proposals.plans

    def save(self, folder: str | Path) -> None:
        """Write the folder of `holmes-sim plan --shortlist`: a launch of each plan, and a README with the next steps.

        Raises HolmesError if the folder is not empty or cannot be written."""
        target = Path(folder)
        shortlist_folder.check(target)
        again = " ".join(filter(None, (shlex.quote(_topology_word(self.request.topology)), str(self.request.wishes))))
        launch_folder.write(shortlist_folder.launch(self.proposals, target, again, self.measured), target)

    def facts(self) -> dict[str, Any]:
        """Plain data, as `holmes-sim plan --shortlist --json` prints it."""
        return self.proposals.facts()

    @property
    def frame(self) -> pd.DataFrame:
        """Data frame with one row per plan: its folder, degrees, seconds of a step, and why it is on the list."""
        rows = []
        for number, one in enumerate(self.plans, 1):
            config, (low, high) = one.plan.config, one.range_s
            degrees = {key: getattr(config, key) for key in (*proposals.COMPARED, "schedule")}
            seconds = {"step_s": one.step_s, "expected_s": one.expected_s, "low_s": low, "high_s": high}
            rows.append({"folder": str(number), **degrees, **seconds, "share": one.share, "why": one.why})
        return frames.table(rows)

    def __repr__(self) -> str:
        found = self.proposals
        where = self.request.topology.name
        return (
            f"{where}: {len(self.plans)} of {found.candidates} layouts to measure with {found.target}; "
            f"the first is expected to take {time_text(self.plans[0].expected_s)} per step"
        )

    def _repr_html_(self) -> str:
        return frames.html(repr(self), self.frame)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A software stack fitted to measured runs. `predicted_s`: seconds of a step of each measured run with this stack."""

    fit: Fit
    runs: tuple[Run, ...]
    predicted_s: tuple[Seconds, ...]

    @property
    def stack(self) -> Stack:
        """The fitted stack."""
        return self.fit.stack

    def save(self, path: str | Path) -> None:
        """Write the stack file, named after the file. Raises HolmesError if it cannot be written."""
        files.write(path, calibration.text(replace(self.fit, name=Path(path).stem)))

    def facts(self) -> dict[str, Any]:
        """Plain data (format holmes-sim/own-calibration/1), as `holmes-sim calibrate --runs --json` prints it."""
        return facts(self.fit, self.runs)

    @property
    def frame(self) -> pd.DataFrame:
        """Data frame with one row per run: its folder, outcome, measured and predicted seconds of a step, and their source."""
        predicted = iter(self.predicted_s)
        rows = [{**run.facts(), "predicted_s": None if run.step_s is None else next(predicted)} for run in self.runs]
        return frames.table(rows)

    def __repr__(self) -> str:
        fit = self.fit
        errors = f"mean error {fit.default_error:.1%} before the fit, {fit.error:.1%} after it"
        return f"stack fitted to {len(fit.cases)} runs: {errors}"

    def _repr_html_(self) -> str:
        return frames.html(repr(self), self.frame)


def shortlist(
    where: Topology,
    number: int,
    target: str = "megatron",
    wishes: Wishes | None = None,
    time_limit: float = 50.0,
    measured: str | Path | Iterable[str | Path] = (),
    progress: Callable[[str], None] = lambda text: None,
    **pins: Unpack[Pins],
) -> Shortlist:
    """The plans, at most `number`, whose measurement says most about which layout is fastest, for a launch target.

    It plans with strategy `certified` for the workload of the topology. `measured`: folders of earlier lists, whose measured
    steps are taken into account; `time_limit` is in seconds.

    Raises OptionError for a number below 1, NotSupported if the target can express no layout, Infeasible if no plan fits,
    HolmesError for a folder without plans, of another workload or of another fleet, and if nothing is left to measure,
    TopologyError without a workload."""
    if number < 1:
        raise OptionError(f"number: {number}; a list has 1 plan or more")
    workload, folders = commands.workload_of(where), _folders(measured)
    request = requirements.request(where, workload, pinned("shortlist", wishes, pins), time_limit, target)
    known = runs.read(folders) if folders else ()
    return Shortlist(request, proposals.proposals(request, number, target, known, progress), folders)


def calibrate(
    measured: str | Path | Iterable[str | Path],
    stack: str | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Calibrated:
    """Fit the constants of one software stack to the runs of folders that `Shortlist.save` or `holmes-sim plan --shortlist`
    wrote.

    `stack`: the stack to start from, a name of the catalogue or a file; the default numbers with the facts of the plans' stack
    if None.

    Raises HolmesError for a folder without plans or without a measured one, TopologyError for an unknown stack or a wrong
    measurement."""
    found = runs.read(_folders(measured))
    runs.measured(found)
    begin = runs.start(stack, found)
    fit = calibration.fit_runs("own", runs.cases(found, "own"), begin, progress)
    return Calibrated(fit, found, runs.predicted(found, fit.stack))


def facts(fit: Fit, measured: Iterable[Run]) -> dict[str, Any]:
    """A stack and the runs that it was fitted to, as plain data (format holmes-sim/own-calibration/1)."""
    return {"format": FORMAT, "stack": calibration.written(fit), "runs": [run.facts() for run in measured]}


def _folders(given: str | Path | Iterable[str | Path]) -> tuple[Path, ...]:
    return tuple(map(Path, [given] if isinstance(given, str | Path) else given))


def _topology_word(topology: Topology) -> str:
    """The topology as an argument of the command line: its name if it is a shipped one, unchanged; else a placeholder."""
    try:
        return topology.name if commands.load(topology.name) == topology else "TOPOLOGY"
    except TopologyError:
        return "TOPOLOGY"
