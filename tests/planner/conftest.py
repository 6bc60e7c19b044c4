"""Settings of tests of the planner."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sim.kernels import communicators
from sim.plan.parallel_config import ParallelConfig
from sim.units import GIGA

NAMES = "CONTEXT", "COMMUNICATOR", "number"
REAL = {name: getattr(communicators, name) for name in NAMES}


@pytest.fixture(autouse=True, scope="module")
def round_bytes_outside_torch() -> Iterator[None]:
    """2 GB outside torch, and 1 GB more with tensor parallelism, whatever the groups of a layout.

    Devices of these tests have room for some layers of tiny models beside that. With the real bytes of a communicator the
    groups of a layout alone would decide whether it fits."""
    round_bytes = {"CONTEXT": 2 * GIGA, "COMMUNICATOR": GIGA, "number": _only_tp}
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.setattr(communicators, name, round_bytes[name])
        yield


@pytest.fixture
def real_communicators(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes outside torch that everything but these tests counts."""
    for name in NAMES:
        monkeypatch.setattr(communicators, name, REAL[name])


def _only_tp(config: ParallelConfig) -> int:
    return int(config.tp > 1)
