"""Launch targets: one file per target.

A module provides `TITLE` (name of the target), `READERS` (programs and versions that have read its exports),
`unsupported(plan)` and `launch(plan)`. The folder is the registry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from holmes_sim.launching.folder import Launch
from sim.errors import HolmesError
from sim.formats.documents import suggestion
from sim.plan.plan import Plan
from sim.registry import Registry


class Exporter(Protocol):
    """Interface of every module of this folder."""

    TITLE: str
    READERS: str

    def unsupported(self, plan: Plan) -> Iterator[str]:
        """Properties of the plan that the target cannot express, each as `property value: reason; what the
        target can express`."""
        ...

    def launch(self, plan: Plan) -> Launch:
        """The files of a launch, for a plan without unsupported properties."""
        ...


REGISTRY: Registry[Exporter] = Registry(__name__, "target", HolmesError, suggestion)


def names() -> tuple[str, ...]:
    """Names of all targets, sorted."""
    return REGISTRY.names


def get(name: str) -> Exporter:
    """The target with this name. Raises HolmesError for an unknown name."""
    return REGISTRY.get(name)
