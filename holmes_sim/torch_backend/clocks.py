"""Clocks of ranks beside that of rank 0.

The offset of a rank is told from the quickest of some round trips to rank 0, half of whose time may lie wrong (Cristian,
Probabilistic clock synchronization, Distributed Computing 3, 1989). It is asked before and after the steps; in between the
clocks are taken to drift evenly."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from sim.units import Seconds

ROUNDS = 20


def offset(rank: int, ranks: int) -> Seconds:
    """What to add to this rank's clock to have rank 0's; all ranks must ask together."""
    mine = torch.zeros(1, dtype=torch.float64)
    if rank == 0:
        for other in range(1, ranks):
            for _ in range(ROUNDS):
                dist.recv(mine, other)
                mine[0] = time.perf_counter()
                dist.send(mine, other)
        return 0.0
    found: list[tuple[Seconds, Seconds]] = []
    for _ in range(ROUNDS):
        asked = time.perf_counter()
        dist.send(mine, 0)
        dist.recv(mine, 0)
        told = time.perf_counter()
        found.append((told - asked, float(mine[0]) - (asked + told) / 2))
    return min(found)[1]
