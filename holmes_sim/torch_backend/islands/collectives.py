"""Sums and gathers of encoded values over the ranks that hold the same parameters, one of each island.

A sum goes around a ring in 2 (n - 1) messages of 1/n of the values, as an all_reduce; at each hop values are decoded, added in
fp32 and encoded anew (INTELLECT-1, arXiv 2412.01152, section 2.2). All islands decode the same final codes, so that they get
the same values, bit by bit."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend.compressors import Codec
from holmes_sim.torch_backend.waiting import finish


def ring_sum(values: Tensor, codec: Codec, group: dist.ProcessGroup) -> Tensor:
    """The sum over the ranks of a gloo group of fp32 values in host memory, rounded by the code at each hop."""
    rank, ranks = group.rank(), group.size()
    ends = [values.numel() * index // ranks for index in range(ranks + 1)]
    sums = [values[start:stop].clone() for start, stop in pairwise(ends)]
    # the part of rank r starts at rank r + 1 and ends at rank r, which then sends the sum around
    arriving = [(rank - hop - 2) % ranks for hop in range(ranks - 1)] + [(rank - hop - 1) % ranks for hop in range(ranks - 1)]
    ring = _Ring(group, [codec.nbytes(sums[part].numel()) for part in arriving])
    code = codec.encode(sums[(rank - 1) % ranks])
    for part in arriving[: ranks - 1]:
        received = ring.pass_on(code)
        sums[part] += codec.decode(received, sums[part].numel())
        code = codec.encode(sums[part])
    for part in (rank, *arriving[ranks - 1 :]):
        sums[part] = codec.decode(code, sums[part].numel())
        code = ring.pass_on(code) if ring.is_open else code
    return torch.cat(sums)


class _Ring:
    """Codes that come from the previous rank and go to the next. All receives are posted at the beginning: the notice that a
    receive is posted would otherwise wait behind our own codes on a link that is busy in both directions, at half the rate."""

    def __init__(self, group: dist.ProcessGroup, sizes: list[int]):
        self.group, rank, ranks = group, group.rank(), group.size()
        self.next_rank, self.hop = (rank + 1) % ranks, 0
        self.buffers = [torch.empty(size, dtype=torch.uint8) for size in sizes]
        self.posted = [
            group.recv([buffer], (rank - 1) % ranks, hop) if buffer.numel() else None for hop, buffer in enumerate(self.buffers)
        ]

    @property
    def is_open(self) -> bool:
        """Whether codes are still to come."""
        return self.hop < len(self.buffers)

    def pass_on(self, code: Tensor) -> Tensor:
        """Send a code to the next rank. Returns that of the previous rank."""
        hop, self.hop = self.hop, self.hop + 1
        sent = self.group.send([code], self.next_rank, hop) if code.numel() else None
        for work in (self.posted[hop], sent):
            if work is not None:
                finish(work)
        return self.buffers[hop]


def gather(values: Tensor, codec: Codec, group: dist.ProcessGroup) -> list[Tensor]:
    """The decoded values of every rank of a gloo group, this one's included, each n - 1 times on the network (all_gather)."""
    rank, ranks, code = group.rank(), group.size(), codec.encode(values)
    ring, codes = _Ring(group, [codec.nbytes(values.numel())] * (ranks - 1)), {rank: code}
    for hop in range(ranks - 1):
        codes[(rank - hop - 1) % ranks] = code = ring.pass_on(code)
    return [codec.decode(codes[index], values.numel()) for index in range(ranks)]
