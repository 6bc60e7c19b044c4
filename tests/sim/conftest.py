"""Fixtures of tests of the simulator."""

from __future__ import annotations

import pytest

from sim.kernels import compute


@pytest.fixture
def free_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedding, head and optimizer cost nothing, so that equal layers make equal stages."""
    monkeypatch.setattr(compute, "embedding_seconds", lambda *_: (0.0, 0.0))
    monkeypatch.setattr(compute, "head_parts", lambda *_: (0.0, 0.0, 0.0))
    monkeypatch.setattr(compute, "optimizer_seconds", lambda *_: 0.0)
