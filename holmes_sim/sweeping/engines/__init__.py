"""Where the scenarios of a sweep are planned: one file, one engine.

A module offers `answers(tasks, count, address)`: (digest, row) of every task, as they are finished. `address` is what stands
behind `://`, empty for `local`. Closing the iterator ends the work. The folder is the registry.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Protocol

from holmes_sim.sweeping.answering import Row, Task
from sim.errors import HolmesError
from sim.registry import Registry


class Engine(Protocol):
    """What every module of this folder offers."""

    def answers(self, tasks: Iterable[Task], count: int, address: str) -> Generator[tuple[str, Row]]:
        """(digest, row) of every task, as they are finished."""


REGISTRY: Registry[Engine] = Registry(__name__, "engine", HolmesError)


def names() -> tuple[str, ...]:
    """All engines, sorted."""
    return REGISTRY.names


def get(where: str) -> tuple[Engine, str]:
    """(engine, address) of `local` or `dask://host:port`. Raises HolmesError for an unknown engine."""
    name, _, address = where.partition("://")
    if name not in names():
        raise HolmesError(f"engine {where!r} is unknown; known: local, dask://HOST:PORT")
    return REGISTRY.get(name), address
