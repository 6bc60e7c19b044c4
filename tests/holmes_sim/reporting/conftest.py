"""A plan, a plan of islands, and the page of each, made once."""

from __future__ import annotations

import pytest

from holmes_sim import commands, reporting
from planner.request import Wishes
from sim.plan.islands import IslandsPlan
from sim.plan.plan import MadeBy
from sim.sync import Sync
from tests.island_plans import island

PINNED = Wishes(tp=2, pp=2, dp=8, microbatch_size=4, recompute="none", schedule="1f1b", cp=1)
"""One shape only, so that planning takes a fraction of a second."""


@pytest.fixture(scope="session")
def planned():
    return commands.plan(commands.load("holmes-hybrid-4"), wishes=PINNED, target="none").plan


@pytest.fixture(scope="session")
def study(planned):
    return reporting.gather(planned, ("megatron",), 1.0)


@pytest.fixture(scope="session")
def html(study) -> str:
    return reporting.page(study)


@pytest.fixture(scope="session")
def uneven_islands() -> IslandsPlan:
    """Two nodes of east beside one node of west with two stages, which waits; half of west is idle."""
    islands = (island("east", 2, batch=16), island("west", 1, batch=8, pp=2, dp=4, zero_stage=1))
    return IslandsPlan(Sync("diloco", 30, compression="int8"), islands, MadeBy("by hand", "1"))
