"""A global batch of twice, and of half, as many sequences."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change
from sim.hardware.topology import Topology


def of(topology: Topology) -> Iterator[Change]:
    """The workload's batch."""
    if topology.workload is None:
        return
    now = topology.workload.global_batch_size
    for size in (2 * now, now // 2) if now % 2 == 0 else (2 * now,):
        yield Change(f"global batch of {size} sequences, not {now}", (("workload.global_batch_size", size),))
