"""Sums of matrices as products of two thin ones, with error feedback (Vogels et al., arXiv 1905.13727, algorithm 1).

For each matrix M of m x n, P = M Q is summed over islands and orthogonalised, Q = M' P is summed, and the sum of the matrices
is taken as P Q'. The next exchange begins with this Q. Weights of more than two dimensions are matrices with columns as their
last dimension; vectors, and matrices for which the products are not smaller, are sent whole. The rank is at most the smaller
side.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend.compressors import Rounded
from holmes_sim.torch_backend.islands.collectives import ring_sum

WHOLE = Rounded(torch.float32)


class LowRankSum:
    """Sums of one list of weights: what it keeps between exchanges, the error feedback and each Q."""

    def __init__(self, shapes: list[tuple[int, ...]], rank: int, seed: int = 0):
        self.sizes = [int(torch.Size(shape).numel()) for shape in shapes]
        self.sides = [(size // shape[-1], shape[-1]) for shape, size in zip(shapes, self.sizes, strict=True)]
        self.thin = [len(shape) > 1 and rank * sum(sides) < size for shape, sides, size in zip(
            shapes, self.sides, self.sizes, strict=True
        )]  # fmt: skip
        self.lost = torch.zeros(sum(self.sizes))
        stream = torch.Generator().manual_seed(seed)
        self.q = [torch.randn(n, min(rank, m, n), generator=stream) for m, n in self.sides]

    def sum(self, values: Tensor, group: dist.ProcessGroup) -> Tensor:
        """The sum over the ranks of a group of the weights, one after the other in `values`."""
        values = values + self.lost
        parts = list(values.split(self.sizes))
        matrices = {i: parts[i].view(self.sides[i]) for i, thin in enumerate(self.thin) if thin}
        whole = [part for part, thin in zip(parts, self.thin, strict=True) if not thin]
        first = _summed([*(matrix @ self.q[i] for i, matrix in matrices.items()), *whole], group)
        p = dict(zip(matrices, (torch.linalg.qr(one).Q for one in first[: len(matrices)]), strict=True))
        second = _summed([matrix.t() @ p[i] for i, matrix in matrices.items()], group)
        found = values.new_zeros(values.numel())
        results, rest = list(found.split(self.sizes)), iter(first[len(matrices) :])
        for index, thin in enumerate(self.thin):
            if not thin:
                results[index].copy_(next(rest))
                parts[index].zero_()  # nothing is lost
        for (index, matrix), q in zip(matrices.items(), second, strict=True):
            results[index].view(matrix.shape).copy_(p[index] @ q.t())
            matrix -= p[index] @ (matrix.t() @ p[index]).t()
            self.q[index] = q
        self.lost = values
        return found


def _summed(values: list[Tensor], group: dist.ProcessGroup) -> list[Tensor]:
    """The sums of several tensors in one all_reduce."""
    if not values:
        return []
    flat = ring_sum(torch.cat([value.reshape(-1) for value in values]), WHOLE, group)
    return [part.view(value.shape) for part, value in zip(flat.split([v.numel() for v in values]), values, strict=True)]
