"""Change: sequences of twice, or half, the number of tokens."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change
from sim.hardware.topology import Topology


def of(topology: Topology) -> Iterator[Change]:
    """Twice the sequence length, and half if it is even; nothing without a workload."""
    if topology.workload is None:
        return
    now = topology.workload.seq_len
    for length in (2 * now, now // 2) if now % 2 == 0 else (2 * now,):
        yield Change(f"sequences of {length} tokens, not {now}", (("workload.seq_len", length),))
