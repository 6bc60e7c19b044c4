"""The commands: one file, one command.

A module offers `NAME`, `ORDER` (its place in --help), `EXAMPLE` (a whole command line) and `command`, a function that typer
reads: its annotated arguments (`holmes_sim.cli.options` has those that several commands take) and its docstring, the help.
What a command says it says by `holmes_sim.cli.output`. All modules are imported at every start, so heavy imports stand inside
the functions. The folder is the registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sim.registry import Registry


class Command(Protocol):
    """What every module of this folder offers."""

    NAME: str
    ORDER: int
    EXAMPLE: str
    command: Callable[..., None]


REGISTRY: Registry[Command] = Registry(__name__, "command")


def in_order() -> tuple[Command, ...]:
    """All commands, as --help lists them."""
    return tuple(sorted(REGISTRY.entries(), key=lambda command: (command.ORDER, command.NAME)))
