"""The commands of the command line, one file per command; the folder is the registry.

A module defines `NAME`, `ORDER` (its position in --help), `EXAMPLE` (a complete command line) and `command`. Typer builds the
options from the annotated parameters of `command` (`holmes_sim.cli.options` has those that several commands share) and the help
text from its docstring. A command prints through `holmes_sim.cli.output`. Every start imports all modules, so slow imports are
inside the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sim.registry import Registry


class Command(Protocol):
    """What every module of this folder defines."""

    NAME: str
    ORDER: int
    EXAMPLE: str
    command: Callable[..., None]


REGISTRY: Registry[Command] = Registry(__name__, "command")


def in_order() -> tuple[Command, ...]:
    """All commands in the order of --help."""
    return tuple(sorted(REGISTRY.entries(), key=lambda command: (command.ORDER, command.NAME)))
