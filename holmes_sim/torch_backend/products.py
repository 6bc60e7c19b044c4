"""Matrix products and exchanges among tensor-parallel ranks, with their backwards.

A product's weight gradient may be put off: schedules that split the backward do the gradient of the input in B and that of
the weight in W (Qi et al., arXiv 2401.10241, section 3). Tensor and sequence parallelism as in Shoeybi et al., arXiv
1909.08053, section 3, and Korthikanti et al., arXiv 2205.05198, section 4.2.2. Activations are (sequence, batch, width).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend.devices import HOST
from holmes_sim.torch_backend.exchanges import all_gather, all_reduce, reduce_scatter


@dataclass(slots=True)
class Tensors:
    """The tensor-parallel ranks that a module is cut over, and what its products put off.

    `told` is called around every exchange, so that it can be timed. `later` holds weight gradients that W will do, while a
    backward is split; None does them at once. `device` is where the module's weights lie.
    """

    group: dist.ProcessGroup | None = None
    rank: int = 0
    ranks: int = 1
    sequence: bool = False
    told: Callable[[str, float, Callable[[], None]], None] = lambda name, nbytes, do: do()
    later: list[Callable[[], None]] | None = field(default=None)
    device: torch.device = HOST

    def cut(self, whole: Tensor, dim: int) -> Tensor:
        """This rank's part of a tensor."""
        return whole.chunk(self.ranks, dim)[self.rank]

    def all_reduce(self, value: Tensor) -> Tensor:
        """The sum over ranks, in place."""
        self.told("all_reduce", value.nbytes, lambda: all_reduce(value, self.group))
        return value

    def all_gather(self, part: Tensor) -> Tensor:
        """The parts of all ranks along the first dimension."""
        whole = part.new_empty((part.shape[0] * self.ranks, *part.shape[1:]))
        source = part.contiguous()
        self.told("all_gather", whole.nbytes, lambda: all_gather(whole, source, self.group))
        return whole

    def reduce_scatter(self, whole: Tensor) -> Tensor:
        """This rank's part, along the first dimension, of the sum over ranks."""
        part = whole.new_empty((whole.shape[0] // self.ranks, *whole.shape[1:]))
        source, group = whole.clone(memory_format=torch.contiguous_format), self.group
        assert group is not None
        self.told("reduce_scatter", whole.nbytes, lambda: reduce_scatter(part, source, group))
        return part


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, tensors: Tensors) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.tensors, ctx.weight = tensors, weight
        return torch.nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        flat = grad.flatten(0, -2)
        toward = (grad @ weight) if ctx.needs_input_grad[0] else None
        bias = flat.sum(0) if ctx.needs_input_grad[2] else None
        if ctx.tensors.later is None:
            return toward, flat.t() @ x.flatten(0, -2), bias, None
        leaf = ctx.weight

        def weigh() -> None:
            leaf.collect(flat.t() @ x.flatten(0, -2))

        ctx.tensors.later.append(weigh)
        return toward, None, bias, None


def product(x: Tensor, weight: Tensor, bias: Tensor | None, tensors: Tensors) -> Tensor:
    """x (.., in) times weight (out, in), transposed, plus bias (out); its weight gradient may be put off.

    A weight whose gradient is put off has an attribute `collect`, which takes it.
    """
    found: Tensor = _Product.apply(x, weight, bias, tensors)  # type: ignore[no-untyped-call]
    return found


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, tensors: Tensors) -> Tensor:
        ctx.tensors = tensors
        return tensors.all_gather(x) if tensors.sequence else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.tensors
        return (tensors.reduce_scatter(grad) if tensors.sequence else tensors.all_reduce(grad.clone())), None


def enter(x: Tensor, tensors: Tensors) -> Tensor:
    """Into a region whose products are cut by columns: with sequence parallelism the whole sequence is gathered."""
    if tensors.ranks == 1:
        return x
    found: Tensor = _Enter.apply(x, tensors)  # type: ignore[no-untyped-call]
    return found


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, tensors: Tensors) -> Tensor:
        ctx.tensors = tensors
        return tensors.reduce_scatter(x) if tensors.sequence else tensors.all_reduce(x.clone())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (ctx.tensors.all_gather(grad) if ctx.tensors.sequence else grad), None


def leave(x: Tensor, tensors: Tensors) -> Tensor:
    """Out of a region whose products are cut by rows: the parts are summed, with sequence parallelism into slices."""
    if tensors.ranks == 1:
        return x
    found: Tensor = _Leave.apply(x, tensors)  # type: ignore[no-untyped-call]
    return found


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, tensors: Tensors) -> Tensor:
        width, logits = logits.shape[-1], logits.float()
        largest = logits.amax(-1)
        if tensors.ranks > 1:
            tensors.told("all_reduce", largest.nbytes, lambda: all_reduce(largest, tensors.group, dist.ReduceOp.MAX))
        powers = torch.exp(logits - largest.unsqueeze(-1))
        here = targets - tensors.rank * width
        own = (here >= 0) & (here < width)
        index = here.clamp(0, width - 1).unsqueeze(-1)
        chosen = (logits.gather(-1, index).squeeze(-1) - largest) * own
        both = torch.stack([powers.sum(-1), chosen])
        if tensors.ranks > 1:
            tensors.all_reduce(both)
        ctx.save_for_backward(powers / both[0].unsqueeze(-1), index, own)
        return (both[0].log() - both[1]).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        shares, index, own = ctx.saved_tensors
        shares = shares.scatter_add(-1, index, -own.to(shares.dtype).unsqueeze(-1))
        return shares * grad, None, None


def cross_entropy(logits: Tensor, targets: Tensor, tensors: Tensors) -> Tensor:
    """Sum over tokens of the cross entropy of logits (sequence, batch, vocabulary / ranks) and targets (sequence, batch)."""
    found: Tensor = _CrossEntropy.apply(logits, targets, tensors)  # type: ignore[no-untyped-call]
    return found
