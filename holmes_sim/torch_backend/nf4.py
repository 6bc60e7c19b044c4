"""Frozen weights in 4 bits, as QLoRA stores them (Dettmers et al., arXiv 2305.14314, section 3).

They are NormalFloat codes in blocks, whose scales are quantised, too. They are written out at full width before each product,
in forward and backward, and not kept."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

LEVELS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""Values of the 16 codes, for weights divided by the largest of their block (arXiv 2305.14314, appendix E)."""
BLOCK, SCALES = 64, 256
"""Weights that share a scale, and scales that share a scale of their own (arXiv 2305.14314, section 3)."""
NARROW = torch.float8_e4m3fn
"""The 8-bit float of a scale; the paper says FP8 and not which one. A guess."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """A weight of a `shape` in 4 bits: two codes a byte, a scale for each block, and scales and mean of these scales."""

    codes: Tensor
    scales: Tensor
    outer: Tensor
    mean: Tensor
    shape: torch.Size

    @property
    def nbytes(self) -> int:
        """Bytes that are stored."""
        return sum(one.nbytes for one in (self.codes, self.scales, self.outer, self.mean))

    def widened(self, dtype: torch.dtype) -> Tensor:
        """The weight at full width."""
        blocks = self.codes.shape[0] * 2 // BLOCK
        outer = self.outer.repeat_interleave(SCALES)[:blocks]
        scales = self.scales.to(torch.float32) * outer + self.mean
        levels = torch.tensor(LEVELS, device=self.codes.device)
        values = levels[torch.stack((self.codes >> 4, self.codes & 15), 1).flatten().int()]
        return (values.view(-1, BLOCK) * scales.unsqueeze(1)).flatten()[: self.shape.numel()].view(self.shape).to(dtype)


def narrowed(weight: Tensor) -> Narrow:
    """A weight in 4 bits; its last block is filled up with zeros."""
    flat = weight.detach().to(torch.float32).flatten()
    blocks = torch.cat((flat, flat.new_zeros(-len(flat) % BLOCK))).view(-1, BLOCK)
    largest = blocks.abs().amax(1)
    mean = largest.mean()
    centred = largest - mean
    groups = torch.cat((centred, centred.new_zeros(-len(centred) % SCALES))).view(-1, SCALES)
    outer = (groups.abs().amax(1) / torch.finfo(NARROW).max).clamp(min=torch.finfo(torch.float32).tiny)
    scales = (centred / outer.repeat_interleave(SCALES)[: len(centred)]).to(NARROW)
    borders = torch.tensor([(low + high) / 2 for low, high in pairwise(LEVELS)], device=weight.device)
    shares = blocks / largest.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(1)
    codes = torch.bucketize(shares, borders).to(torch.uint8).view(-1, 2)
    return Narrow(codes[:, 0] << 4 | codes[:, 1], scales, outer, mean, weight.shape)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Narrow, bias: Tensor | None) -> Tensor:
        ctx.weight = weight
        return torch.nn.functional.linear(x, weight.widened(x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (grad @ ctx.weight.widened(grad.dtype) if ctx.needs_input_grad[0] else None), None, None


def frozen_linear(x: Tensor, weight: Narrow, bias: Tensor | None) -> Tensor:
    """x (.., in) times the transpose of a weight (out, in), plus bias (out); neither weight nor bias has a gradient."""
    found: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return found
