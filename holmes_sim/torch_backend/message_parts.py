"""Parts of activations that a rank sends to each of several peers: some of the samples, and some of the tokens of them.

Activations have the shape (sequence, samples, hidden). Peers are in the order of their samples, then of their cp and tp indices
(`ParallelConfig.peers`). A message has its tokens in the order of their positions in the sequence, as both ends do."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from sim.plan import token_parts
from sim.plan.parallel_config import ParallelConfig
from sim.plan.program import Action

Parts: TypeAlias = tuple[tuple[int, ...], ...]
"""For each peer that has the same samples, which of the equal parts of a rank's tokens it has."""


def shares(config: ParallelConfig, pp_rank: int, peer: int) -> int:
    """The number of ranks of pipeline rank `peer` that divide the samples of a rank of `pp_rank`: 1 if none does."""
    return max(config.dp_of(peer) // config.dp_of(pp_rank), 1)


def parts_of(config: ParallelConfig, rank: int, peer: int) -> Parts:
    """The parts of a rank's tokens that its peers on pipeline rank `peer` have."""
    tp, dp_cp, pp_rank = config.coordinates(rank)
    cp = config.cp_of(pp_rank)
    if cp == config.cp_of(peer):
        return tuple((index,) for index in range(config.sharing(pp_rank, peer)))
    found = token_parts.exchanged((dp_cp % cp, tp), config.context_of(pp_rank), config.context_of(peer))
    return tuple(found.values())


def division(config: ParallelConfig, rank: int, peer: int) -> tuple[int, Parts]:
    """How the ranks of pipeline rank `peer` divide the samples (`shares`) and the tokens (`parts_of`) of a rank."""
    return shares(config, config.coordinates(rank)[2], peer), parts_of(config, rank, peer)


def cut(whole: Tensor, divided: int, parts: Parts) -> list[Tensor]:
    """The parts of activations for some peers, which divide the samples into `divided` (`shares`) and have `parts` of them
    (`parts_of`)."""
    return [part for some in whole.chunk(divided, 1) for part in _cut(some, parts)]


def _cut(whole: Tensor, parts: Parts) -> list[Tensor]:
    pieces = whole.chunk(sum(map(len, parts)))
    return [torch.cat([pieces[index] for index in own]) if len(own) > 1 else pieces[own[0]].contiguous() for own in parts]


def joined(values: list[Tensor], divided: int, parts: Parts) -> Tensor:
    """The activations of which values were received from peers, as `cut` cuts them."""
    if len(values) == 1:
        return values[0]
    alike = len(values) // divided
    return torch.cat([_joined(values[first : first + alike], parts) for first in range(0, len(values), alike)], 1)


def _joined(values: list[Tensor], parts: Parts) -> Tensor:
    pieces: dict[int, Tensor] = {}
    for value, own in zip(values, parts, strict=True):
        pieces |= zip(own, value.chunk(len(own)), strict=True)
    return torch.cat([pieces[index] for index in sorted(pieces)])


def taken(outputs: dict[tuple[str, int, int], Tensor], config: ParallelConfig, pp_rank: int, send: Action) -> Tensor:
    """The samples of a message, of the output of a pass, which may leave in several; the last one removes the output."""
    microbatch, one = divmod(send.microbatch, many := config.messages_of(pp_rank, send.peer))
    key = send.operation, send.stage, microbatch
    if many == 1:
        return outputs.pop(key)
    value = outputs[key] if one + 1 < many else outputs.pop(key)
    return value.chunk(many, 1)[one].contiguous()


def entered(inputs: dict[tuple[str, int, int], Tensor], config: ParallelConfig, pp_rank: int, action: Action) -> Tensor:
    """Remove and return the input of a part of a pass: what the part before left, or the messages of the pass, joined."""
    before = pp_rank + (1 if action.kind == "B" else -1)
    many = 1 if action.part or config.pp == 1 else config.messages_of(pp_rank, before)
    own = range(action.microbatch * many, (action.microbatch + 1) * many)
    values = [inputs.pop((action.kind, action.stage, one)) for one in own]
    return torch.cat(values, 1) if many > 1 else values[0]
