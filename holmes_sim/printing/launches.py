"""Summary of an export: the files that were written and what was assumed."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group, RenderableType
from rich.markup import escape

from holmes_sim.launching.folder import README, Launch


def launched(target: str, folder: Path, launch: Launch) -> RenderableType:
    """Where the files are and which one to read first, then one line per assumption."""
    lines = [f"{len(launch.files)} files for {target} in {folder}; {folder / README} says how to launch."]
    lines += [f"Assumed: {line}" for line in launch.assumed]
    return Group(*(escape(line) for line in lines))
