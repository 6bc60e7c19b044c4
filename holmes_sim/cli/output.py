"""Output of commands: results on stdout, progress and notes on stderr; files are written completely or not at all."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from sim.plan.plan import Plan

MIN_WIDTH = 140
"""Minimum characters per line if stdout is not a terminal. Guess."""


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """A status line on stderr, shown only if stderr is a terminal; yields the function that updates its text."""
    from holmes_sim import printing

    screen = printing.console(stderr=True)
    if not screen.is_terminal:
        yield lambda text: None
        return
    with screen.status(f"{what} ...") as status:
        yield lambda text: status.update(f"{what}: {text}")


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, shown only if stderr is a terminal; yields a function of the finished and the total number."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from holmes_sim import printing

    screen = printing.console(stderr=True)
    if not screen.is_terminal:
        yield lambda done, of: None
        return
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen) as shown:
        task = shown.add_task(what, total=None)

        def update(done: int, of: int) -> None:
            shown.update(task, completed=done, total=of)

        yield update


def show(content: RenderableType) -> None:
    """Print tables and text on stdout."""
    from holmes_sim import printing

    screen = printing.console()
    if not screen.is_terminal:
        screen.width = max(screen.width, MIN_WIDTH)
    screen.print(content)


def show_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def note(text: str) -> None:
    """Print a text on stderr, unless it is empty."""
    if text:
        sys.stderr.write(text + "\n")


def note_written(*paths: Path | None) -> None:
    """Print on stderr which files were written; None means that a file was not asked for."""
    note(" ".join(f"Written to {path}." for path in paths if path))


def note_rests_on(plan: Plan, profile: str | None) -> None:
    """Print on stderr which software stack is assumed, which devices use measured seconds of a profile, and which formulas."""
    from holmes_sim import commands

    lines = commands.rests_on(plan)
    if profile is not None and not lines:
        lines = (f"Profile {profile} has no rows for these devices; formulas are used.",)
    note("\n".join((*commands.software(plan), *lines)))


def write(path: Path | None, text: str) -> None:
    """Write a file, unless the path is None."""
    if path is not None:
        from holmes_sim import files

        files.write(path, text)


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file."""
    from holmes_sim import charts

    charts.save(figure, path)


def can_be_drawn(path: Path | None) -> None:
    """Check the file ending of a picture before long work. Raises HolmesError if it is unknown."""
    if path is not None:
        from holmes_sim import charts

        charts.ending(path)


def can_be_written(*paths: Path | None) -> None:
    """Check before long work that files can be written. Raises HolmesError if one cannot."""
    from holmes_sim import files

    for path in paths:
        if path is not None:
            files.check(path)


def distinct(*paths: Path | None) -> None:
    """Check that no path is given twice, as an input or an output. Raises HolmesError if one is."""
    from sim.errors import HolmesError

    seen: set[Path] = set()
    for path in paths:
        if path is not None and path.resolve() in seen:
            raise HolmesError(f"{path}: given twice; it would be overwritten")
        if path is not None:
            seen.add(path.resolve())
