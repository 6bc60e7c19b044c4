"""Fixtures of tests of the simulator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sim.analytic.stage_amounts import weight_seconds
from sim.analytic.stage_costs import compute_seconds
from sim.kernels import compute


@pytest.fixture
def free_ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Embedding, head and optimizer cost nothing, so that equal layers make equal stages."""
    monkeypatch.setattr(compute, "embedding_seconds", lambda *_: (0.0, 0.0))
    monkeypatch.setattr(compute, "head_parts", lambda *_: (0.0, 0.0, 0.0))
    monkeypatch.setattr(compute, "optimizer_seconds", lambda *_: 0.0)
    for cached in (compute_seconds, weight_seconds):  # what other tests computed
        cached.cache_clear()
    yield
    for cached in (compute_seconds, weight_seconds):
        cached.cache_clear()
