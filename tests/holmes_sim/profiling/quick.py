"""A profile that takes few and small measurements."""

from __future__ import annotations

import pytest


def measure_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure few products and small buffers, each as seldom as possible."""
    monkeypatch.setattr("holmes_sim.profiling.ceilings.SQUARES", (64, 128))
    monkeypatch.setattr("holmes_sim.profiling.ceilings.WIDE", (64,))
    monkeypatch.setattr("holmes_sim.profiling.ceilings.BUFFER", {False: 2**20, True: 2**20})
    monkeypatch.setattr("holmes_sim.profiling.machine.ROUNDS", 1)
