"""What a command says, and where: results on stdout, progress and notes on stderr, files whole or not at all."""

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

NARROWEST = 140
"""Characters of a line where stdout is no terminal."""


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr that says how far things are, where stderr is a terminal."""
    from holmes_sim import printing

    screen = printing.console(stderr=True)
    if not screen.is_terminal:
        yield lambda text: None
        return
    with screen.status(f"{what} ...") as status:
        yield lambda text: status.update(f"{what}: {text}")


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr with what is done, of how many, and the time left, where stderr is a terminal."""
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

        def tell(done: int, of: int) -> None:
            shown.update(task, completed=done, total=of)

        yield tell


def show(content: RenderableType) -> None:
    """Print tables and sentences on stdout."""
    from holmes_sim import printing

    screen = printing.console()
    if not screen.is_terminal:
        screen.width = max(screen.width, NARROWEST)
    screen.print(content)


def show_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def note(text: str) -> None:
    """A line on stderr, where there is something to say."""
    if text:
        sys.stderr.write(text + "\n")


def note_written(*paths: Path | None) -> None:
    """Say which files were written, those that are asked for."""
    note(" ".join(f"Written to {path}." for path in paths if path))


def note_rests_on(plan: Plan, profile: str | None) -> None:
    """Say what of a profile was used, and where it was not."""
    from holmes_sim import commands

    lines = commands.rests_on(plan)
    note("\n".join(lines) if lines or profile is None else f"Profile {profile} has no row of these devices; formulas are used.")


def write(path: Path | None, text: str) -> None:
    """Write a file that is asked for."""
    if path is not None:
        from holmes_sim import files

        files.write(path, text)


def save(figure: Figure, path: Path) -> None:
    """Write a picture."""
    from holmes_sim import charts

    charts.save(figure, path)


def can_be_drawn(path: Path | None) -> None:
    """Refuse a picture of an unknown ending before the work. Raises HolmesError."""
    if path is not None:
        from holmes_sim import charts

        charts.ending(path)


def can_be_written(*paths: Path | None) -> None:
    """Refuse files that cannot be written before the work. Raises HolmesError."""
    from holmes_sim import files

    for path in paths:
        if path is not None:
            files.check(path)


def distinct(*paths: Path | None) -> None:
    """Refuse to write over what is read, or two things to one place. Raises HolmesError."""
    from sim.errors import HolmesError

    seen: set[Path] = set()
    for path in paths:
        if path is not None and path.resolve() in seen:
            raise HolmesError(f"{path}: named twice; it would be written over")
        if path is not None:
            seen.add(path.resolve())
