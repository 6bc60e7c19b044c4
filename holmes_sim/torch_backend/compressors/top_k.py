"""top-k=SHARE: the values of largest magnitude and their positions."""

from __future__ import annotations

import torch
from torch import Tensor

from holmes_sim.torch_backend.compressors import Codec, as_bytes
from sim.compression.top_k import NAME, PAIR, share_of

__all__ = ["NAME", "codec"]


class TopK:
    """The largest values, in fp32, then their positions, in 4 bytes each. At least one value is sent."""

    def __init__(self, share: float):
        self.share = share

    def sent(self, count: int) -> int:
        """Number of values that are sent out of so many."""
        return max(1, round(self.share * count)) if count else 0

    def nbytes(self, count: int) -> int:
        """8 bytes for each value that is sent."""
        return PAIR * self.sent(count)

    def encode(self, values: Tensor) -> Tensor:
        """The largest values and their positions."""
        positions = values.abs().topk(self.sent(values.numel()), sorted=False).indices
        return torch.cat([as_bytes(values[positions]), as_bytes(positions.to(torch.int32))])

    def decode(self, code: Tensor, count: int) -> Tensor:
        """Zeros, with the values that were sent."""
        largest, positions = (half.clone() for half in code.chunk(2))
        found = torch.zeros(count, dtype=torch.float32, device=code.device)
        return found.index_copy_(0, positions.view(torch.int32).long(), largest.view(torch.float32))


def codec(argument: str) -> Codec:
    """The share of the values that is sent, `1%` for instance."""
    return TopK(share_of(argument))
