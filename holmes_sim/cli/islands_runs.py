"""Plans of islands on real processes: `holmes-sim run` and `holmes-sim lab` of their files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holmes_sim.cli import output as out
from holmes_sim.cli import ranks
from sim.errors import OptionError

if TYPE_CHECKING:
    from holmes_sim.torch_backend.run_options import RunOptions
    from sim.plan.islands import IslandsPlan


def run(path: Path, plan: IslandsPlan, options: RunOptions, local: bool, as_json: bool) -> None:
    """Run outer periods here or as one rank of a launch, and print them beside the simulated ones."""
    from holmes_sim import running_islands as running
    from holmes_sim.running import is_comparable

    _no_timeline(path, options)
    number = sum(island.config.world_size for island in plan.islands)
    ranks.note_wait(plan.prediction.period_s if local and plan.prediction else None, options, options.scale)
    compared = ranks.run(
        path, number, local, lambda: running.as_rank(plan, options), lambda: running.run_here(plan, options),
        f" of {len(plan.islands)} islands",
    )  # fmt: skip
    if compared is None:
        return
    notes = ranks.loopback(local, plan.islands)
    if as_json:
        out.show_json(compared.facts() | {"notes": list(notes)})
        return
    from holmes_sim import printing

    out.show(printing.measured_islands(compared))
    ranks.note_devices(compared.measured.computed_on, (spec.name for island in plan.islands for spec in island.specs))
    if not is_comparable(compared.measured.computed_on, (spec for island in plan.islands for spec in island.specs)):
        out.note(ranks.NOT_COMPARABLE)
    ranks.show_notes(notes)


def lab(path: Path, plan: IslandsPlan, options: RunOptions, chart: Path | None, as_json: bool) -> None:
    """Run outer periods in the lab, and print them beside the simulated ones."""
    from holmes_sim import printing, running_islands

    _no_timeline(path, options)
    if chart is not None:
        raise OptionError(f"{path}: lab draws no --chart of a plan of islands; `holmes-sim show` draws its simulation")
    number = sum(island.config.world_size for island in plan.islands)
    ranks.note_wait(plan.prediction.period_s if plan.prediction else None, options, ranks.lab_scale(plan, options))
    with out.progress(f"{number} ranks of {len(plan.islands)} islands in the lab"):
        answer = running_islands.run_in_lab(plan, options)
    found = answer.compared
    ranks.show_lab(answer, found.measured.scale, found.facts(), lambda: printing.measured_islands(found), as_json)


def _no_timeline(path: Path, options: RunOptions) -> None:
    if options.output:
        raise OptionError(f"{path}: a run of a plan of islands writes no timeline (-o); --json prints its outer periods")
