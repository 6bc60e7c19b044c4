"""Launch targets: one file, one target.

A module offers `TITLE` (the target's own name), `READERS` (who has checked what it writes: program and version),
`against(plan)` and `launch(plan)`. The folder is the registry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from holmes_sim.launching.folder import Launch
from sim.errors import HolmesError
from sim.formats.documents import suggestion
from sim.plan.plan import Plan
from sim.registry import Registry


class Exporter(Protocol):
    """What every module of this folder offers."""

    TITLE: str
    READERS: str

    def against(self, plan: Plan) -> Iterator[str]:
        """What the target cannot express, each `property value: why; what would be expressible`; nothing where it can all."""
        ...

    def launch(self, plan: Plan) -> Launch:
        """The files of a launch, for a plan that nothing stands against."""
        ...


REGISTRY: Registry[Exporter] = Registry(__name__, "target", HolmesError, suggestion)


def names() -> tuple[str, ...]:
    """Names of all targets, sorted."""
    return REGISTRY.names


def get(name: str) -> Exporter:
    """The target of a name; raises HolmesError."""
    return REGISTRY.get(name)
