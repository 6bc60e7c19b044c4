"""The folder that `holmes-sim plan --shortlist` writes: a launch of each proposed plan, and a README with the next steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holmes_sim import exporting
from holmes_sim.launching.folder import README, File, Launch
from holmes_sim.printing.shortlists import rows
from holmes_sim.proposals import Proposals, Proposed
from sim.errors import HolmesError
from sim.units import time_text

MEASURE = """
## Measure

Run 20 steps or more with this launch, then do one of these in this folder ({name}):

- copy the log of Megatron-LM, Megatron-Bridge or torchtitan here, as `run.log`;
- write the median seconds of a step, without the first five steps, to `measured.yaml`: `step_s: 4.9`;
- if the run ends for want of memory, write `outcome: failed` to `measured.yaml`.

Expected: {step} per step ({range} in 80 % of runs). `holmes-sim calibrate --runs {folder}` reads the times of all plans.
"""
TOP = """# Plans to measure: {model} on {topology}, for {target}

The {number} plans whose measurement says most about which layout is fastest: near the best by prediction, and unlike one
another. They were chosen among {candidates} layouts.

| plan | layout | expected step | in 80 % of runs | why |
| --- | --- | --- | --- | --- |
{rows}

## Next

1. Run some of the plans, in this order, 20 steps or more each. Measure at least three. The README of each plan says how.
2. In the folder of each plan that ran, put its log, or `measured.yaml` with the seconds of a step.
3. `holmes-sim calibrate {runs} -o mine.yaml` fits the software stack to them.
4. `holmes-sim plan {again} --stack mine.yaml` plans again.

`holmes-sim plan {again} --shortlist {number} {runs} -o {folder}-2` proposes further plans that take these times
into account.
"""


def check(folder: Path) -> None:
    """Raise HolmesError if the folder cannot be written because it has files. Called before long work."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HolmesError(f"{folder}: exists and is not empty; name a new folder")


def launch(found: Proposals, folder: Path, again: str, earlier: Sequence[Path] = ()) -> Launch:
    """The files of the folder; `again` are the arguments of `plan` that repeat the request, `earlier` the folders of runs that
    the list took into account."""
    files: dict[str, File] = {}
    for number, one in enumerate(found.plans, 1):
        own = exporting.export(one.plan, found.target).files
        own[README] = replace(own[README], content=f"{own[README].content!s}{_measure(one, folder, number)}")
        files |= {f"{number}/{name}": file for name, file in own.items()}
    plan = found.plans[0].plan
    text = TOP.format(
        model=plan.workload.model.name,
        topology=plan.topology.name,
        target=found.target,
        number=len(found.plans),
        candidates=found.candidates,
        rows="\n".join(f"| {' | '.join(row)} |" for row in rows(found)),
        folder=folder,
        runs=" ".join(f"--runs {one}" for one in (*earlier, folder)),
        again=again,
    )
    return Launch({README: File(text, "this file"), **files}, "")


def _measure(one: Proposed, folder: Path, number: int) -> str:
    step, low, high = (time_text(float(f"{seconds:.3g}")) for seconds in (one.expected_s, *one.range_s))
    return MEASURE.format(name=folder / str(number), folder=folder, step=step, range=f"{low} to {high}")
