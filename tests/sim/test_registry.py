"""Registries that are folders: what is there, by name, and what an unknown name says."""

from __future__ import annotations

import pytest

from sim.errors import PlanError, TopologyError
from sim.plan import schedules
from sim.registry import Registry, module_names


def test_the_modules_of_a_package_are_its_entries() -> None:
    registry: Registry[object] = Registry("sim.collectives", "collective")
    assert "ring" in registry.names
    assert list(registry.names) == sorted(registry.names)
    assert [registry.get(name) for name in registry.names] == list(registry.entries())


def test_an_entry_may_be_known_by_a_constant_of_its_module() -> None:
    assert "1f1b" in schedules.names()
    assert schedules.get("1f1b").NAME == "1f1b"
    assert "1f1b" not in module_names(schedules.__path__)


def test_an_unknown_name_lists_known_ones() -> None:
    with pytest.raises(PlanError, match=r"^schedule 'x' is unknown; known: .*1f1b.*$"):
        schedules.get("x")
    registry: Registry[object] = Registry("sim.collectives", "thing", TopologyError, lambda name, known: f": {len(known) > 1}")
    with pytest.raises(TopologyError, match=r"^thing 'x' is unknown: True$"):
        registry.get("x")
