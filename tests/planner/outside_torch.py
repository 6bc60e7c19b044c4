"""Bytes outside torch in tests of the planner: round ones, by tensor parallelism alone.

Devices of these tests have room for some layers of tiny models beside that. With the real bytes of a communicator the groups of
a layout alone would decide whether it fits."""

from __future__ import annotations

from sim.plan.parallel_config import ParallelConfig
from sim.units import GIGA, Bytes

CONTEXT: Bytes = 2.0 * GIGA
COMMUNICATOR: Bytes = 1.0 * GIGA


def number(config: ParallelConfig) -> int:
    """One communicator under tensor parallelism, and no other."""
    return int(config.tp > 1)
