"""Settings of tests of the planner."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sim.kernels import communicators
from tests.planner import outside_torch

NAMES = "CONTEXT", "COMMUNICATOR", "number"
REAL = {name: getattr(communicators, name) for name in NAMES}


@pytest.fixture(autouse=True, scope="module")
def round_bytes_outside_torch() -> Iterator[None]:
    """The bytes outside torch of `tests.planner.outside_torch`."""
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.setattr(communicators, name, getattr(outside_torch, name))
        yield


@pytest.fixture
def real_communicators(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes outside torch that everything but these tests counts."""
    for name in NAMES:
        monkeypatch.setattr(communicators, name, REAL[name])
