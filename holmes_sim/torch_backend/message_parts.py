"""Parts of activations that a rank sends to each of several peers: some of the samples, and a slice of the sequence of them.

Activations have the shape (sequence, samples, hidden). Peers are in the order of their samples, then of their slices
(`ParallelConfig.peers`). Where peers have another cp, a part is what a peer has of the two chunks of the sequence
(`holmes_sim.torch_backend.context_parallel`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

from sim.plan.parallel_config import ParallelConfig

Piece = TypeVar("Piece")


def shares(config: ParallelConfig, pp_rank: int, peer: int) -> int:
    """The number of ranks of pipeline rank `peer` that divide the samples of a rank of `pp_rank`: 1 if none does."""
    return max(config.dp_of(peer) // config.dp_of(pp_rank), 1)


def chunks_of(config: ParallelConfig, tp: int) -> tuple[bool, ...]:
    """Which of both chunks of its cp rank's part of a sequence a tensor-parallel rank sends and receives, where stages have
    unlike cp (then tp is 1 or 2): True is the second, whose last part is that of the first peer. Empty with equal cp."""
    if not config.stage_cp:
        return ()
    return (False, True) if config.tp == 1 else (tp == 1,)


def cut(whole: Tensor, peers: int, divided: int, chunks: tuple[bool, ...] = ()) -> list[Tensor]:
    """The parts of activations for some peers, which divide the samples into `divided` (`shares`), or the `chunks` of the
    sequence (`chunks_of`)."""
    return [part for some in whole.chunk(divided, 1) for part in _cut(some, peers // divided, chunks)]


def _cut(whole: Tensor, peers: int, chunks: tuple[bool, ...]) -> list[Tensor]:
    """The parts of activations for peers that have the same samples."""
    if not chunks:
        return [part.contiguous() for part in whole.chunk(peers)]
    pieces = [chunk.chunk(peers)[:: -1 if second else 1] for chunk, second in _each(whole.chunk(len(chunks)), chunks)]
    return [torch.cat(parts) for parts in zip(*pieces, strict=True)]


def joined(parts: list[Tensor], divided: int, chunks: tuple[bool, ...] = ()) -> Tensor:
    """The activations whose parts were received from peers that divide the samples into `divided`, or the `chunks` of the
    sequence, as `cut` cuts them."""
    if len(parts) == 1:
        return parts[0]
    alike = len(parts) // divided
    return torch.cat([_joined(parts[first : first + alike], chunks) for first in range(0, len(parts), alike)], 1)


def _joined(parts: list[Tensor], chunks: tuple[bool, ...]) -> Tensor:
    """The activations of peers that have the same samples."""
    if not chunks or len(parts) == 1:
        return torch.cat(parts)
    pieces = zip(*(part.chunk(len(chunks)) for part in parts), strict=True)
    return torch.cat([torch.cat(some[:: -1 if second else 1]) for some, second in _each(pieces, chunks)])


def _each(pieces: Iterable[Piece], chunks: tuple[bool, ...]) -> Iterator[tuple[Piece, bool]]:
    return zip(pieces, chunks, strict=True)
