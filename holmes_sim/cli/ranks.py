"""What the commands that run the ranks of any kind of plan have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holmes_sim.cli import output as out
from sim.units import Seconds, duration_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from holmes_sim.lab.traffic import LabPlan
    from holmes_sim.launching.hosts import Placed
    from holmes_sim.running import InLab
    from holmes_sim.torch_backend.run_options import RunOptions

LONG: Seconds = 600.0
"""Wait from which on it is told before it begins. A guess."""
NOT_COMPARABLE = (
    "The error says nothing about the prediction: CPUs computed in place of these devices. `holmes-sim profile` measures this "
    "machine for `plan --profile`; `--compute paced` waits the predicted seconds instead."
)
"""What is said of runs whose seconds say nothing about the prediction (`holmes_sim.running.is_comparable`)."""

Compared = TypeVar("Compared")


def run(
    path: Path, ranks: int, local: bool, as_rank: Callable[[], Compared | None], here: Callable[[], Compared], where: str = ""
) -> Compared | None:
    """What ranks measured: as one of them in a launch, where only rank 0 has an answer, or all of them on this machine.

    where: what they belong to, in words. Raises HolmesError where neither is asked for."""
    from holmes_sim import running
    from sim.errors import HolmesError

    if running.is_launched() and not local:
        return as_rank()
    if not local:
        raise HolmesError(f"{path}: start its {ranks} ranks with torchrun, or all of them on this machine with --local")
    with out.progress(f"running {ranks} ranks{where}"):
        return here()


def note_wait(predicted: Seconds | None, options: RunOptions, scale: float) -> None:
    """Say before it begins that a run with paced compute takes long: predicted seconds of a step or outer period, times the
    scale, for each timed one and the untimed one."""
    each = (predicted or 0.0) * scale
    if options.compute == "paced" and each * (options.steps + 1) > LONG:
        out.note(
            f"This takes {duration_text(each * (options.steps + 1))} or more: {options.steps} + 1 times the predicted "
            f"{duration_text(predicted or 0.0)} at scale {scale:g}. Fewer --steps, a smaller model or batch take less."
        )


def lab_scale(plan: LabPlan, options: RunOptions) -> float:
    """The scale at which the lab begins: that of the options, or the smallest that the cores can carry."""
    from holmes_sim import lab, running

    return options.scale or lab.smallest_scale(plan, running.cores())


def show_lab(
    answer: InLab[Compared], scale: float, facts: dict[str, Any], table: Callable[[], RenderableType], as_json: bool
) -> None:
    """Print what was measured in the lab at a scale: `facts` of the comparison for programs, or its table."""
    show_notes(answer.notes)
    out.note(answer.load.why_not)
    if as_json:
        out.show_json(answer.facts(facts))
        return
    out.show(table())
    out.note(f"Scale {scale:g}; the cores were busy {answer.load.busy:.0%} of the time{answer.load.by_whom}.")


def note_devices(computed_on: Iterable[str], planned: Iterable[str]) -> None:
    """Say on which devices ranks computed, and for which devices the prediction is; nothing where they did not compute."""
    if computed_on:
        out.note(f"Computed on {' and '.join(computed_on)}; predicted for {' and '.join(dict.fromkeys(planned))}.")


def loopback(local: bool, plans: Iterable[Placed]) -> tuple[str, ...]:
    """A note that messages did not travel over the plan's links, where all ranks of several hosts ran on this machine."""
    from holmes_sim.torch_backend.run_options import host_of

    hosts = {host_of(plan, rank) for plan in plans for rank in range(len(plan.placement))}
    if not local or len(hosts) == 1:
        return ()
    return (
        f"messages between the {len(hosts)} hosts of the plan went over the loopback of this machine, not over the plan's "
        "links, which `holmes-sim lab` shapes",
    )


def show_notes(notes: Iterable[str]) -> None:
    """Print each note on a line of its own, below the tables."""
    for text in notes:
        out.note(f"Note: {text}.")
