"""holmes-sim calibrate: fit the constants of software stacks to measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import output as out
from holmes_sim.cli.options import Cases, Json, Runs, StackWord

NAME = "calibrate"
ORDER = 80
EXAMPLE = "holmes-sim calibrate --runs shortlist -o mine.yaml"


def command(
    cases: Cases = None,
    runs: Runs = None,
    stack: StackWord = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FOLDER|FILE", help="Folder for one stack file per stack; with --runs, the stack file."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit the constants of each software stack to measured runs, and report the error on runs that the fit did not see."""
    from holmes_sim import calibration, files, validation
    from sim.errors import HolmesError

    if runs:
        if cases:
            raise HolmesError(
                "give either --cases (published runs, or your own case file) or --runs (folders of plans that ran)"
            )
        _own(runs, stack, output, as_json)
        return
    if stack is not None:
        raise HolmesError("--stack, the stack to start from, needs --runs; with --cases each case names its stack")
    found = validation.read(cases or [validation.folder()])
    if output is not None:
        files.folder(output)
    with out.progress("calibrating") as progress:
        fitted = calibration.calibrate(found, progress)
    if output is not None:
        for fit in fitted.fits:
            out.write(output / f"{fit.name}.yaml", calibration.text(fit))
    if as_json:
        out.show_json(calibration.facts(fitted))
        return
    from holmes_sim import printing

    out.show(printing.calibrated(fitted))
    out.note_written(output)


def _own(folders: list[Path], start: str | None, output: Path | None, as_json: bool) -> None:
    """Fit one stack to the runs of folders that `holmes-sim plan --shortlist` wrote."""
    from holmes_sim import calibration, own_runs, runs

    found = runs.read(folders)
    runs.measured(found)
    begin = runs.start(start, found)
    out.can_be_written(output)
    with out.progress("calibrating") as progress:
        fit = calibration.fit_runs(output.stem if output else "own", runs.cases(found, "own"), begin, progress)
    out.write(output, calibration.text(fit))
    if as_json:
        out.show_json(own_runs.facts(fit, found))
        return
    from holmes_sim import printing

    out.show(printing.runs(found, fit, runs.predicted(found, fit.stack)))
    out.note_written(output)
