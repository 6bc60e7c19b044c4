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


def ring_sum(values: Tensor, codec: Codec, group: dist.ProcessGroup) -> Tensor:
    """The sum over the ranks of a gloo group of fp32 values in host memory, rounded by the code at each hop."""
    rank, ranks = group.rank(), group.size()
    ends = [values.numel() * index // ranks for index in range(ranks + 1)]
    sums = [values[start:stop].clone() for start, stop in pairwise(ends)]
    for hop in range(ranks - 1):  # the part of rank r starts at rank r + 1 and ends at rank r
        sending, receiving = (rank - hop - 1) % ranks, (rank - hop - 2) % ranks
        code = _pass_on(codec.encode(sums[sending]), codec.nbytes(sums[receiving].numel()), group, hop)
        sums[receiving] += codec.decode(code, sums[receiving].numel())
    code = codec.encode(sums[rank])
    for hop in range(ranks - 1):
        sending, receiving = (rank - hop) % ranks, (rank - hop - 1) % ranks
        sums[sending] = codec.decode(code, sums[sending].numel())
        code = _pass_on(code, codec.nbytes(sums[receiving].numel()), group, ranks + hop)
    last = (rank + 1) % ranks
    sums[last] = codec.decode(code, sums[last].numel())
    return torch.cat(sums)


def _pass_on(code: Tensor, nbytes: int, group: dist.ProcessGroup, tag: int) -> Tensor:
    """Send a code to the next rank. Returns that of the previous rank, of `nbytes` bytes."""
    rank, ranks = group.rank(), group.size()
    received = torch.empty(nbytes, dtype=torch.uint8)
    sent = group.send([code], (rank + 1) % ranks, tag) if code.numel() else None
    if nbytes:
        group.recv([received], (rank - 1) % ranks, tag).wait()
    if sent is not None:
        sent.wait()
    return received


def gather(values: Tensor, codec: Codec, group: dist.ProcessGroup) -> list[Tensor]:
    """The decoded values of every rank of a gloo group, this one's included, each n - 1 times on the network (all_gather)."""
    code = codec.encode(values)
    codes = [torch.empty_like(code) for _ in range(group.size())]
    if code.numel():
        group.allgather([codes], [code]).wait()
    return [codec.decode(one, values.numel()) for one in codes]
