"""Shell completion of arguments and options: names of files and modules, found without importing the modules.

Completion must be fast, so it does not import the planner. Each completer takes the incomplete word, as typer calls it, and may
return names that do not match: typer keeps those that begin with the incomplete word. If none matches, shells complete file
names.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from sim.registry import module_names

Completer = Callable[[str], list[str]]


def words(*known: str) -> Completer:
    """A completer of the given words."""

    def complete(incomplete: str) -> list[str]:
        return list(known)

    return complete


def modules(package: str, *more: str) -> Completer:
    """A completer of the module names of a registry package, such as `planner.strategies`, and of the words `more`."""

    def complete(incomplete: str) -> list[str]:
        return [*more, *module_names([str(_folder(package))])]

    return complete


def listed(package: str, *more: str) -> Completer:
    """A completer of a comma-separated list of the names that `modules` completes."""
    one = modules(package, *more)

    def complete(incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        return [before + comma + name for name in one(begun)]

    return complete


def schedules(incomplete: str) -> list[str]:
    """Complete the name of a pipeline schedule, as its module defines it."""
    from sim.plan import schedules as known

    return list(filter(known.can_be_pinned, known.names()))


def schemas(incomplete: str) -> list[str]:
    """Complete the name of a schema: that of its module, with hyphens."""
    known = module_names([str(_folder("holmes_sim.schemas"))])
    return ["result", *sorted(name.rstrip("_").replace("_", "-") for name in known)]


def catalogue(kind: str) -> Completer:
    """A completer of the entries of one kind in the catalogue, such as `models` or `profiles`."""

    def complete(incomplete: str) -> list[str]:
        return sorted(path.stem for path in (_folder("sim.catalog") / kind).glob("*.yaml"))

    return complete


def shipped(kind: str, *endings: str) -> Completer:
    """A completer of shipped `topologies` or `studies` by name, then of files in the current folder with one of `endings`."""

    def complete(incomplete: str) -> list[str]:
        package = _folder("holmes_sim")
        folder = package / kind if (package / kind).is_dir() else package.parent / kind
        names = sorted(path.relative_to(folder).as_posix().removesuffix(".yaml") for path in folder.rglob("*.yaml"))
        return [*names, *sorted(path.name for path in Path().iterdir() if path.suffix in endings)]

    return complete


def _folder(package: str) -> Path:
    spec = find_spec(package)  # imports the parent packages only, and all of them import fast
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent
