"""Tables of a verification: the measured device beside the catalogue, and predicted beside measured steps."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.printing.measurements import MEMORY
from holmes_sim.printing.profiles import profiled
from holmes_sim.printing.tables import grid
from holmes_sim.profiling.results import ProfileResult
from holmes_sim.verifying import AIM, STEADY, Verification
from sim.units import GIBI, time_text


def verified(found: Verification) -> Group:
    """The profile, a table of steps, what did not run, and the verdict."""
    parts: list[Group | Text | Table] = [profiled(ProfileResult(found.device, found.link)), Text()]
    if found.nccl:
        parts += [Text(found.nccl), Text()]
    table = grid("Steps", "name", "devices", "layout", "measured", "spread", "from profile", "error", "from catalogue", "error")
    table.columns[0].header = "model"
    for step in found.steps:
        own, stock = step.errors
        by_catalogue = "-" if step.catalogued is None else time_text(step.catalogued)
        table.add_row(
            step.name, str(step.devices), step.layout, time_text(step.measured), f"{step.spread:.1%}", time_text(step.profiled),
            f"{own:+.1%}", by_catalogue, "-" if stock is None else f"{stock:+.1%}",
        )  # fmt: skip
    parts += [table, Text()]
    if any(step.memory for step in found.steps):
        parts += [_memory(found), Text()]
    parts += [Text(f"Did not run: {fault}", style="red") for fault in found.faults]
    named = (
        f"The catalogue has this device as {found.catalogued}."
        if found.catalogued
        else "The catalogue does not have this device."
    )
    parts += [Text(named), Text(_verdict(found))]
    return Group(*parts)


def _memory(found: Verification) -> Table:
    heads = (head for name in MEMORY.values() for head in (f"{name}\npredicted", "\nmeasured"))
    table = grid("Memory of a device (in GiB)", "name", *heads)
    table.columns[0].header = "model"
    for step in found.steps:
        lines = [line for name in MEMORY for line in step.memory if line.name == name and line.pp_rank == 0]
        table.add_row(step.name, *(f"{size / GIBI:.2f}" for line in lines for size in (line.predicted, line.measured)))
    return table


def _verdict(found: Verification) -> str:
    if unsteady := [step.name for step in found.steps if step.spread > STEADY]:
        return f"Not a valid measurement: the steps of {', '.join(unsteady)} differ by over {STEADY:.0%}; is the machine idle?"
    if found.confirmed:
        return f"Confirmed: every step is predicted from the profile within {AIM:.0%}."
    outside = [step.name for step in found.steps if abs(step.errors[0]) > AIM]
    reasons = [f"outside {AIM:.0%}: {', '.join(outside)}"] if outside else []
    return f"Not confirmed; {'; '.join(reasons + (['not all parts ran'] if found.faults else []))}."
