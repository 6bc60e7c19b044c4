"""Engines: where the scenarios of a sweep are planned, one file per engine.

A module offers `results(tasks, count, address)`: (digest, row) of every task in the order they finish. `address` is the part
after `://`, empty for `local`. Closing the iterator stops the work. The folder is the registry.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Protocol

from holmes_sim.sweeping.worker import Row, Task
from sim.errors import HolmesError
from sim.registry import Registry


class Engine(Protocol):
    """Interface of the modules in this folder."""

    def results(self, tasks: Iterable[Task], count: int, address: str) -> Generator[tuple[str, Row]]:
        """(digest, row) of every task, in the order they finish."""


REGISTRY: Registry[Engine] = Registry(__name__, "engine", HolmesError)


def names() -> tuple[str, ...]:
    """Names of all engines, sorted."""
    return REGISTRY.names


def get(where: str) -> tuple[Engine, str]:
    """(engine, address) of `local` or `dask://host:port`. Raises HolmesError for an unknown engine."""
    name, _, address = where.partition("://")
    if name not in names():
        raise HolmesError(f"engine {where!r} is unknown; known: local, dask://HOST:PORT")
    return REGISTRY.get(name), address
