"""Tensor and sequence parallelism: linear layers and collectives among tensor-parallel ranks, with their backward passes.

The weight gradient of a linear layer may be deferred: schedules that split the backward compute the input gradient in B and the
weight gradient in W (Qi et al., arXiv 2401.10241, section 3). Tensor and sequence parallelism follow Shoeybi et al., arXiv
1909.08053, section 3, and Korthikanti et al., arXiv 2205.05198, section 4.2.2. Activations have the shape (sequence, batch,
width).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend.communication import all_gather, all_reduce, reduce_scatter
from holmes_sim.torch_backend.devices import HOST


@dataclass(slots=True)
class TensorParallel:
    """The tensor-parallel ranks over which a module is sharded, and the weight gradients that are deferred.

    - `sequence`: whether sequence parallelism is used.
    - `run_timed`: runs every collective, given its name, bytes and function, so that it can be timed.
    - `deferred`: weight gradients to compute in W while the backward is split; None computes them at once.
    - `device`: device of the weights.
    - `context`: the context-parallel ranks of this rank, each with a part of the sequences; None where they are whole.
    """

    group: dist.ProcessGroup | None = None
    rank: int = 0
    ranks: int = 1
    sequence: bool = False
    run_timed: Callable[[str, float, Callable[[], None]], None] = lambda name, nbytes, do: do()
    deferred: list[Callable[[], None]] | None = field(default=None)
    device: torch.device = HOST
    context: TensorParallel | None = None

    def shard(self, whole: Tensor, dim: int) -> Tensor:
        """This rank's shard of a tensor along `dim`."""
        return whole.chunk(self.ranks, dim)[self.rank]

    def all_reduce(self, value: Tensor) -> Tensor:
        """The sum over ranks, in place."""
        self.run_timed("all_reduce", value.nbytes, lambda: all_reduce(value, self.group))
        return value

    def all_gather(self, part: Tensor) -> Tensor:
        """The parts of all ranks, concatenated along the first dimension."""
        whole = part.new_empty((part.shape[0] * self.ranks, *part.shape[1:]))
        source = part.contiguous()
        self.run_timed("all_gather", whole.nbytes, lambda: all_gather(whole, source, self.group))
        return whole

    def reduce_scatter(self, whole: Tensor) -> Tensor:
        """This rank's part, along the first dimension, of the sum over ranks."""
        part = whole.new_empty((whole.shape[0] // self.ranks, *whole.shape[1:]))
        source, group = whole.clone(memory_format=torch.contiguous_format), self.group
        assert group is not None
        self.run_timed("reduce_scatter", whole.nbytes, lambda: reduce_scatter(part, source, group))
        return part


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, parallel: TensorParallel) -> Tensor:
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        ctx.parallel, ctx.weight = parallel, weight
        return torch.nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        flat = grad.flatten(0, -2)
        input_gradient = (grad @ weight) if ctx.needs_input_grad[0] else None
        bias = flat.sum(0) if ctx.needs_input_grad[2] else None
        if not ctx.needs_input_grad[1]:
            return input_gradient, None, bias, None
        if ctx.parallel.deferred is None:
            return input_gradient, flat.t() @ x.flatten(0, -2), bias, None
        leaf = ctx.weight

        def weight_gradient() -> None:
            leaf.collect(flat.t() @ x.flatten(0, -2))

        ctx.parallel.deferred.append(weight_gradient)
        return input_gradient, None, bias, None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, parallel: TensorParallel) -> Tensor:
    """x (.., in) times the transpose of weight (out, in), plus bias (out). The weight gradient may be deferred.

    A weight whose gradient is deferred has an attribute `collect`, a function that accumulates the gradient.
    """
    found: Tensor = _Linear.apply(x, weight, bias, parallel)  # type: ignore[no-untyped-call]
    return found


class _EnterParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, parallel: TensorParallel) -> Tensor:
        ctx.parallel = parallel
        return parallel.all_gather(x) if parallel.sequence else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        parallel = ctx.parallel
        return (parallel.reduce_scatter(grad) if parallel.sequence else parallel.all_reduce(grad.clone())), None


def enter_parallel_region(x: Tensor, parallel: TensorParallel) -> Tensor:
    """Enter a region with column-parallel weights. With sequence parallelism the sequence is all-gathered; the backward reduces
    the gradient."""
    if parallel.ranks == 1:
        return x
    found: Tensor = _EnterParallelRegion.apply(x, parallel)  # type: ignore[no-untyped-call]
    return found


class _LeaveParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, parallel: TensorParallel) -> Tensor:
        ctx.parallel = parallel
        return parallel.reduce_scatter(x) if parallel.sequence else parallel.all_reduce(x.clone())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (ctx.parallel.all_gather(grad) if ctx.parallel.sequence else grad), None


def leave_parallel_region(x: Tensor, parallel: TensorParallel) -> Tensor:
    """Leave a region with row-parallel weights: partial results are summed (all_reduce), or reduce-scattered with sequence
    parallelism."""
    if parallel.ranks == 1:
        return x
    found: Tensor = _LeaveParallelRegion.apply(x, parallel)  # type: ignore[no-untyped-call]
    return found


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, parallel: TensorParallel) -> Tensor:
        width, shares = logits.shape[-1], logits.to(torch.float32, copy=True)  # one copy, changed in place as in Megatron-LM
        largest = shares.amax(-1)
        if parallel.ranks > 1:
            parallel.run_timed("all_reduce", largest.nbytes, lambda: all_reduce(largest, parallel.group, dist.ReduceOp.MAX))
        shares -= largest.unsqueeze(-1)
        here = targets - parallel.rank * width
        own = (here >= 0) & (here < width)
        index = here.clamp(0, width - 1).unsqueeze(-1)
        chosen = shares.gather(-1, index).squeeze(-1) * own
        both = torch.stack([shares.exp_().sum(-1), chosen])
        if parallel.ranks > 1:
            parallel.all_reduce(both)
        shares /= both[0].unsqueeze(-1)
        ctx.save_for_backward(shares, index, own)
        return (both[0].log() - both[1]).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        shares, index, own = ctx.saved_tensors
        shares.scatter_add_(-1, index, -own.to(shares.dtype).unsqueeze(-1))
        return shares.mul_(grad), None, None


def cross_entropy(logits: Tensor, targets: Tensor, parallel: TensorParallel) -> Tensor:
    """Cross entropy summed over tokens, from logits (sequence, batch, vocabulary / ranks) and targets (sequence, batch)."""
    found: Tensor = _CrossEntropy.apply(logits, targets, parallel)  # type: ignore[no-untyped-call]
    return found
