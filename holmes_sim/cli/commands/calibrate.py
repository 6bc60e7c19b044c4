"""holmes-sim calibrate: fit the constants of software stacks to measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import output as out
from holmes_sim.cli.options import Cases, Json

NAME = "calibrate"
ORDER = 80
EXAMPLE = "holmes-sim calibrate --cases my-runs.yaml -o stacks"


def command(
    cases: Cases = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Folder to write one stack file per stack into.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit the constants of each software stack to measured runs, and report the error on runs that the fit did not see."""
    from holmes_sim import calibration, files, validation

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
