"""int8: each block of values as bytes between its smallest and its largest value."""

from __future__ import annotations

import torch
from torch import Tensor

from holmes_sim.torch_backend.compressors import Codec, as_bytes, blocks
from sim.compression.int8 import BLOCK, NAME

__all__ = ["NAME", "codec"]

STEPS = 255
"""Steps between the smallest and the largest value of a block."""


class Int8:
    """A byte for each value, then the smallest value and the width of a step of each block, in fp32."""

    def nbytes(self, count: int) -> int:
        """One byte a value, and 8 bytes a block."""
        return count + 8 * -(-count // BLOCK)

    def encode(self, values: Tensor) -> Tensor:
        """Values rounded to the nearest step."""
        rows = blocks(values, BLOCK)
        least, most = rows.aminmax(dim=1, keepdim=True)
        width = (most - least) / STEPS
        steps = ((rows - least) / width.clamp_min(torch.finfo(torch.float32).tiny)).round_().clamp_(0, STEPS)
        return torch.cat([steps.to(torch.uint8).view(-1)[: values.numel()], as_bytes(torch.cat([least, width], 1))])

    def decode(self, code: Tensor, count: int) -> Tensor:
        """The values of the steps."""
        facts = code[count:].clone().view(torch.float32).view(-1, 2)
        rows = blocks(code[:count], BLOCK).to(torch.float32)
        return (rows.mul_(facts[:, 1:]).add_(facts[:, :1])).view(-1)[:count]


def codec(argument: str) -> Codec:
    """One byte a value."""
    return Int8()
