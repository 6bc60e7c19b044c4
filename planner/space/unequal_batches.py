"""Data-parallel degrees that do not divide the batch: some replicas then have one microbatch more than the others.

A cluster of 24 slots holds one stage of 24 replicas or two of 12. Where the batch is a power of two, dp 16 or 8 would leave a
third of these slots idle. The step is that of the replicas with the most microbatches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.request import Request
from sim.plan import schedules

STAGES = 4
"""Number of stages up to which dp is chosen so that they fill a cluster (a guess). With more stages, a dp that divides the
batch leaves few slots idle. A larger value widens the searched space, and takes longer."""


def unequal_degrees(request: Request, capacities: Sequence[tuple[int, int]]) -> list[int]:
    """dp that does not divide the batch: the pinned one, else those with which whole stages fill a cluster.

    capacities: of each cluster, the replicas that one stage can have, and those that fit on a node. Empty under a schedule or
    ZeRO stage, or with experts, that need replicas with the same number of microbatches."""
    wishes, batch = request.wishes, request.workload.global_batch_size
    chunked = wishes.schedule is not None and schedules.get(wishes.schedule).CHUNKED
    if chunked or (wishes.vpp or 1) > 1 or (wishes.zero_stage or 0) > 1 or (wishes.ep or 1) > 1 or wishes.etp:
        return []
    degrees = [wishes.dp] if wishes.dp else replicas_of_whole_clusters(batch, capacities)
    most, shards = min(max((capacity for capacity, _ in capacities), default=0), batch), wishes.zero_shard_size or 1
    return [dp for dp in degrees if batch % dp and dp <= most and dp * (wishes.cp or 1) % shards == 0]


def replicas_of_whole_clusters(batch: int, capacities: Iterable[tuple[int, int]]) -> list[int]:
    """Every dp that does not divide the batch and with which 1 to `STAGES` stages fill a cluster, ascending.

    capacities: as in `unequal_degrees`. Of all dp whose fullest replica has equally many sequences, only the least that fills
    whole and half nodes, or of which whole stages fill a node: the others need more devices for the same step, or their stages
    begin anywhere in nodes, where many rings of gradients share NICs."""
    found = set()
    for capacity, on_node in capacities:
        for most in (capacity // stages for stages in range(1, STAGES + 1)):
            if 1 < most < batch:
                least = _ceil(batch, _ceil(batch, most))
                aligned = (dp for dp in range(least, most + 1) if dp % max(on_node // 2, 1) == 0 or on_node % dp == 0)
                found.add(next(aligned, 1))
    return sorted(dp for dp in found if batch % dp)


def can_have(batch: int, dp: int, size: int) -> bool:
    """Whether a batch has microbatches of this size, and every replica at least one."""
    return batch % size == 0 and batch // size >= dp


def is_faster_with(batch: int, dp: int, size: int) -> bool:
    """Whether microbatches of this size give the fullest of dp replicas fewer sequences than the largest dp below that divides
    the batch."""
    if not can_have(batch, dp, size):
        return False
    divisor = next(one for one in range(dp, 0, -1) if batch % one == 0)
    return _ceil(batch // size, dp) * size < batch // divisor


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)
