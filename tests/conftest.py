"""Settings of all tests: hypothesis profiles, one thread per process of torch, and little garbage collection.

The profile `usual` tries the same examples in every run, `--hypothesis-profile=deep` many new ones.
"""

from __future__ import annotations

import gc
import math
import os

import pytest
from hypothesis import HealthCheck, settings

TOLERANT = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("usual", max_examples=10, deadline=None, derandomize=True, suppress_health_check=TOLERANT)
settings.register_profile("deep", max_examples=3000, deadline=None, database=None, suppress_health_check=TOLERANT)
settings.load_profile("usual")

# OpenMP threads wait actively: with two test processes on two cores they take the time that the other process needs.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tables are as wide as the terminal, and some expected lines would be divided elsewhere.
os.environ.pop("COLUMNS", None)


def pytest_collection_finish() -> None:
    """Take the collected tests, which live to the end, out of every later garbage collection, and collect less often.

    With Python's thresholds 8 % of the time of the tests are collections, which find little."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def pytest_sessionfinish() -> None:
    """Collect what the tests left once; pytest collects it twice more."""
    gc.collect()
    gc.freeze()


DRAWN = 30
"""Plans that strategy random ranks in tests, in place of 200: as its drawing and ranking are the same for any number."""


@pytest.fixture(autouse=True)
def less_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies beside a search are planned in the process of the test: `make test` already uses two cores. Strategy random
    ranks few plans."""
    monkeypatch.setattr("planner.search.beside.PARALLEL_FROM", math.inf)
    monkeypatch.setattr("planner.strategies.random.DRAWN", DRAWN)
