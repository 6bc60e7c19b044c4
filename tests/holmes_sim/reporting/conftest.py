"""A plan and its page, made once."""

from __future__ import annotations

import pytest

from holmes_sim import commands, reporting
from planner.request import Wishes

PINNED = Wishes(tp=2, pp=2, dp=8, microbatch_size=4, recompute="none", schedule="1f1b")
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
