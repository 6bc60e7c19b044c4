"""int4: each value as a sign and one of eight magnitudes, powers of two below the largest magnitude of its block, or zero.

That is the 4-bit float E3M0 (three bits of exponent, none of mantissa) of Streaming DiLoCo (arXiv 2501.18512, section 2.3)."""

from __future__ import annotations

import torch
from torch import Tensor

from holmes_sim.torch_backend.compressors import Codec, as_bytes, blocks
from sim.compression.int4 import NAME
from sim.compression.int8 import BLOCK

__all__ = ["NAME", "codec"]

ZERO = 7
"""Exponent that stands for zero; exponent e below it stands for the largest magnitude divided by 2^e."""


class Int4:
    """Half a byte for each value, then the largest magnitude of each block, in fp32."""

    def nbytes(self, count: int) -> int:
        """Half a byte a value, and 4 bytes a block."""
        return -(-count // 2) + 4 * -(-count // BLOCK)

    def encode(self, values: Tensor) -> Tensor:
        """Values rounded to the nearest magnitude."""
        rows = blocks(values, BLOCK)
        most = rows.abs().amax(1, keepdim=True)
        mantissa, exponent = torch.frexp(rows.abs() / most.clamp_min(torch.finfo(torch.float32).tiny))  # mantissa in [1/2, 1)
        below = (mantissa == 0) | (exponent < 1 - ZERO)  # nearer to zero than to the smallest magnitude
        nearest = ((mantissa < 0.75).to(exponent.dtype) - exponent).clamp(0, ZERO - 1)
        nibbles = torch.where(below, ZERO, nearest) + 8 * (rows < 0)
        nibbles = nibbles.to(torch.uint8).view(-1)[: values.numel()]
        pairs = torch.cat([nibbles, nibbles[:1]]) if values.numel() % 2 else nibbles
        return torch.cat([pairs[::2] | pairs[1::2] << 4, as_bytes(most)])

    def decode(self, code: Tensor, count: int) -> Tensor:
        """The values of the magnitudes."""
        size = -(-count // 2)
        nibbles = torch.stack([code[:size] & 15, code[:size] >> 4], 1).view(-1)[:count]
        table = torch.tensor([2.0**-exponent for exponent in range(ZERO)] + [0.0], dtype=torch.float32, device=code.device)
        rows = blocks(torch.cat([table, -table])[nibbles.long()], BLOCK)
        return (rows * code[size:].clone().view(torch.float32).view(-1, 1)).view(-1)[:count]


def codec(argument: str) -> Codec:
    """Half a byte a value."""
    return Int4()
