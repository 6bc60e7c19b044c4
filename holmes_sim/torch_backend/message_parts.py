"""Parts of activations that a rank sends to each of several peers: some of the samples, and a slice of the sequence of them.

Activations have the shape (sequence, samples, hidden). Peers are in the order of their samples, then of their slices
(`ParallelConfig.peers`)."""

from __future__ import annotations

import torch
from torch import Tensor

from sim.plan.parallel_config import ParallelConfig


def shares(config: ParallelConfig, pp_rank: int, peer: int) -> int:
    """The number of ranks of pipeline rank `peer` that divide the samples of a rank of `pp_rank`: 1 if none does."""
    return max(config.dp_of(peer) // config.dp_of(pp_rank), 1)


def cut(whole: Tensor, peers: int, divided: int) -> list[Tensor]:
    """The parts of activations for some peers, which divide the samples into `divided` (`shares`)."""
    return [part.contiguous() for some in whole.chunk(divided, 1) for part in some.chunk(peers // divided)]


def joined(parts: list[Tensor], divided: int) -> Tensor:
    """The activations whose parts were received from peers that divide the samples into `divided` (`shares`)."""
    if len(parts) == 1:
        return parts[0]
    slices = len(parts) // divided
    return torch.cat([torch.cat(parts[first : first + slices]) for first in range(0, len(parts), slices)], 1)
