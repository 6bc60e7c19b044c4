"""Checks: what is odd in a valid topology file, one file per check.

A module offers `findings(subject)`, which yields what it finds; the first line of its docstring says what it looks for. The
folder is the registry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from holmes_sim.findings import Finding, Subject
from sim.errors import HolmesError
from sim.registry import Registry


class Check(Protocol):
    """Interface of the modules in this folder."""

    def findings(self, subject: Subject) -> Iterator[Finding]:
        """What the check finds in a topology."""
        ...


REGISTRY: Registry[Check] = Registry(__name__, "check", HolmesError)


def names() -> tuple[str, ...]:
    """Names of all checks, sorted."""
    return REGISTRY.names


def get(name: str) -> Check:
    """The check with this module name."""
    return REGISTRY.get(name)
