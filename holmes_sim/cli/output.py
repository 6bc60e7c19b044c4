"""Output of commands: results on stdout, progress and notes on stderr; files are written completely or not at all."""

from __future__ import annotations

import functools
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console, RenderableType

    from sim.plan.plan import Plan

MIN_WIDTH = 140
"""Minimum characters per line if stdout is not a terminal. Guess."""


def console(stderr: bool = False) -> Console:
    """A console on stdout or stderr; it prints plain text if that is not a terminal."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


@contextmanager
def progress(what: str, seconds: float | None = None, first: str = "") -> Iterator[Callable[[str], None]]:
    """A status line on stderr, shown only if stderr is a terminal; yields the function that updates its text.

    `seconds`: how long the work may take from now on; the line then says how much of it is left. `first`: a line above
    it that stays. In a file or a pipe, neither line is there: nobody waits before it, and an error is one line."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield lambda text: None
        return
    if first:
        screen.print(first, markup=False, highlight=False)
    line = _Line(f"{what} ...", None if seconds is None else time.monotonic() + seconds)
    with screen.status(line):
        yield functools.partial(line.show, what)


class _Line:
    """The text of a status line, with the seconds left until `end`, which rich renders anew several times a second."""

    def __init__(self, text: str, end: float | None):
        self._text, self._end = text, end

    def show(self, what: str, text: str) -> None:
        """Change the text."""
        self._text = f"{what}: {text}"

    def __rich__(self) -> str:
        from rich.markup import escape

        if self._end is None:
            return escape(self._text)
        left = self._end - time.monotonic()
        return escape(f"{self._text}, " + (f"{left:.0f} s left" if left > 0 else "time is up"))


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C has no effect in this block, in which finished results are written and printed."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, shown only if stderr is a terminal; yields a function of the finished and the total number."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    screen = console(stderr=True)
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
    screen = console()
    if not screen.is_terminal:
        screen.width = max(screen.width, MIN_WIDTH)
    screen.print(content)


def show_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def show_json_line(value: Any) -> None:
    """Print a JSON document on one line of stdout, at once."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def show_line(text: str) -> None:
    """Print a line on stdout, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


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
