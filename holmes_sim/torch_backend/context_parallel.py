"""Context parallelism: each rank has a part of every sequence, and attends to the keys and values of all ranks.

A sequence is cut into two chunks for each rank, and rank r of n has chunk r and chunk 2 n - 1 - r, so that all ranks have
equally many pairs of a query and an earlier key (Megatron-LM's get_batch_on_this_cp_rank). Keys and values are all-gathered
before the attention core, and their gradients reduce-scattered behind it: in the forward the same bytes as in the ring of
Megatron-Core's cp_comm_type p2p, which attends to each part as it arrives. In the backward that ring sends keys and values once
more, which a gathered copy saves here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from holmes_sim.torch_backend.tensor_parallel import TensorParallel, enter_parallel_region
from sim.plan.parallel_config import ParallelConfig

RunTimed: TypeAlias = Callable[[str, str, float, Callable[[], None]], None]
"""Runs a collective, given the kind of its group, its name, its bytes and a function."""


def context_of(
    config: ParallelConfig, dp_cp: int, groups: dict[str, dist.ProcessGroup], run_timed: RunTimed, device: torch.device
) -> TensorParallel | None:
    """The cp ranks of a rank, whose number among the dp and cp ranks of its stage is `dp_cp`; None for cp 1."""
    if config.cp == 1:
        return None
    timed = functools.partial(run_timed, "cp")
    return TensorParallel(groups["cp"], dp_cp % config.cp, config.cp, True, timed, device=device)


def positions(length: int, rank: int, ranks: int, device: torch.device | None = None) -> Tensor:
    """Positions in a sequence of the tokens that a rank has, ascending; all `length` of them for one rank."""
    every = torch.arange(length, device=device)
    if ranks == 1:
        return every
    chunks = every.chunk(2 * ranks)
    return torch.cat([chunks[rank], chunks[2 * ranks - 1 - rank]])


def part(whole: Tensor, parallel: TensorParallel) -> Tensor:
    """The rows of a tensor (sequence, ..) that a rank has."""
    context = parallel.context
    return whole if context is None else whole[positions(whole.shape[0], context.rank, context.ranks, whole.device)]


def positions_of(length: int, parallel: TensorParallel, device: torch.device | None = None) -> Tensor:
    """Positions of the `length` tokens that a rank has of each sequence."""
    context = parallel.context
    if context is None:
        return torch.arange(length, device=device)
    return positions(length * context.ranks, context.rank, context.ranks, device)


def attend(q: Tensor, k: Tensor, v: Tensor, parallel: TensorParallel, grouped: bool) -> Tensor:
    """Causal attention of this rank's queries (batch, heads, sequence, head_dim) to the keys and values of all cp ranks."""
    context = parallel.context
    if context is None:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    own = torch.cat([k, v], -1).permute(2, 0, 1, 3).contiguous()
    k, v = enter_parallel_region(own, context).permute(1, 2, 0, 3).chunk(2, -1)
    length = k.shape[-2]
    every = torch.cat([positions(length, rank, context.ranks, q.device) for rank in range(context.ranks)])
    mask = positions(length, context.rank, context.ranks, q.device).unsqueeze(-1) >= every
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)
