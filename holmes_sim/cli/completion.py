"""What can follow on a command line, for shells to complete: names of files and modules, without importing what they hold.

A Tab should not wait for the planner. Each function here takes the word begun, as typer calls it, and may say more than fits:
typer keeps what begins so. Where nothing fits, shells complete the names of files.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from sim.registry import module_names

Completer = Callable[[str], list[str]]


def words(*known: str) -> Completer:
    """One of a few words."""

    def complete(incomplete: str) -> list[str]:
        return list(known)

    return complete


def modules(package: str, *more: str) -> Completer:
    """A module of a folder that is a registry, such as `planner.strategies`; or one of a few words more."""

    def complete(incomplete: str) -> list[str]:
        return [*more, *module_names([str(_folder(package))])]

    return complete


def listed(package: str, *more: str) -> Completer:
    """The same, several of them with commas between."""
    one = modules(package, *more)

    def complete(incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        return [before + comma + name for name in one(begun)]

    return complete


def schedules(incomplete: str) -> list[str]:
    """A pipeline schedule, by the name that its module gives it."""
    from sim.plan import schedules as known

    return list(known.names())


def catalogue(kind: str) -> Completer:
    """An entry of the catalogue: `models`, `profiles`."""

    def complete(incomplete: str) -> list[str]:
        return sorted(path.stem for path in (_folder("sim.catalog") / kind).glob("*.yaml"))

    return complete


def shipped(kind: str, *endings: str) -> Completer:
    """What ships, `topologies` or `studies`, by name; then files here with one of these endings."""

    def complete(incomplete: str) -> list[str]:
        package = _folder("holmes_sim")
        folder = package / kind if (package / kind).is_dir() else package.parent / kind
        names = sorted(path.relative_to(folder).as_posix().removesuffix(".yaml") for path in folder.rglob("*.yaml"))
        return [*names, *sorted(path.name for path in Path().iterdir() if path.suffix in endings)]

    return complete


def _folder(package: str) -> Path:
    spec = find_spec(package)  # of what lies in another package it imports that one, and all of them are light
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent
