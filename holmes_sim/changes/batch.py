"""Change: a global batch size of twice, or half, the number of sequences."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change
from sim.hardware.topology import Topology


def of(topology: Topology) -> Iterator[Change]:
    """Twice the batch size, and half if it is even; nothing without a workload."""
    if topology.workload is None:
        return
    now = topology.workload.global_batch_size
    for size in (2 * now, now // 2) if now % 2 == 0 else (2 * now,):
        yield Change(f"global batch of {size} sequences, not {now}", (("workload.global_batch_size", size),))
