"""A site with a small topology, and two plans of it that differ in one pin."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from holmes_sim import commands
from planner.request import Wishes
from sim.plan.plan import Plan
from tests.holmes_sim.serving.visiting import Site


@pytest.fixture(scope="package")
def topology():
    return commands.load("lab/lab-slow-trunk")


@pytest.fixture(scope="package")
def two_plans(topology) -> tuple[Plan, Plan]:
    """One layout each, so that planning takes a moment."""
    pins = {"tp": 1, "dp": 2, "pp": 2, "recompute": "none", "schedule": "1f1b"}
    return tuple(
        commands.plan(topology, strategy="megatron", wishes=Wishes(microbatch_size=size, **pins)).plan for size in (1, 2)
    )


@pytest.fixture(scope="module")
def site(topology, tmp_path_factory) -> Iterator[Site]:
    """A site that the visitor has entered. Its searches take SIGINT, which a test run in the background may ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    made = Site(tmp_path_factory.mktemp("states"), topology)
    made.enter()
    yield made
    made.close()
    signal.signal(signal.SIGINT, before)
