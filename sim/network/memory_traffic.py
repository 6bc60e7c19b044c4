"""Memory traffic of collectives: how far those of gradients and weights slow the compute beside them.

A ring collective moves its payload through the memory of every rank, on NVLink as on NICs. While it runs, it takes that share
of the memory's rate from the kernels beside it, so a collective of s seconds that moves b bytes through a memory of rate r
costs compute b / r seconds in all, however long it takes.
"""

from __future__ import annotations

from collections.abc import Iterable

from sim.hardware.device_spec import DeviceSpec
from sim.units import Seconds

RING_TRAFFIC = 3.0
"""Bytes that a ring collective reads and writes in the memory of a rank for each byte of its payload: it writes what the rank
before has sent into a buffer, reads it from there, and writes it to its place (all_gather) or reads what it is added to
(reduce_scatter); 3 - 2/n and 3 - 1/n on n ranks. Counted in NVIDIA/nccl 5067397c, src/device/all_gather.h and reduce_scatter.h
(runRing: recvCopySend, recvReduceSend). On NICs, which read and write these buffers too, it is more."""


MOST_TAKEN = 0.5
"""Largest share of a memory that a collective takes: memory serves both alike where both could fill it."""


def traffic_share(operation: str, per_byte: Seconds, devices: Iterable[DeviceSpec]) -> float:
    """Seconds that compute beside a collective loses for each second of it, on the device with the slowest memory.

    per_byte: seconds of the collective for each byte of its payload. An all_reduce scatters and then gathers.

    That nothing hides these bytes is an assumption, as under ZeRO 3 (`sim.analytic.stage_amounts.traffic_seconds`)."""
    if per_byte <= 0.0:
        return 0.0
    moved = RING_TRAFFIC * (2.0 if operation == "all_reduce" else 1.0)
    slowest = min(device.memory_bandwidth * device.elementwise_efficiency for device in devices)
    taken = min(moved / (slowest * per_byte), MOST_TAKEN)
    return taken / (1.0 - taken)
