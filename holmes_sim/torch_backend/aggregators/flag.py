"""flag: the islands' values projected onto the subspace that most of them share (`sim.aggregation.flag`)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sim.aggregation.flag import ITERATIONS, NAME, rank

__all__ = ["NAME", "aggregate", "combination"]

SMALL = 1e-7
"""Added to squared distances before their root is divided by (`eps` of the code of the paper)."""


def aggregate(gathered: list[Tensor], total: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """A combination of the islands' values. Its factors are those of the whole model, so that all ranks take the same."""
    islands = gathered[0].shape[0] if gathered else 0
    products = torch.zeros(islands, islands, dtype=torch.float64)
    for values in gathered:
        products += (values @ values.T).double().cpu()
    factors = combination(total(products))
    return [factors.to(values.device, values.dtype) @ values for values in gathered]


def combination(products: Tensor) -> Tensor:
    """Factor of each island's values in the result, from their products with each other (p, p).

    With the norms scaled to 1 the products are X' X. The left singular vectors of X W, with the weights W, are
    Y = X W V / S, so that Y Y' = X M X' with M = W V S^-2 V' W, and Y Y' X 1 = X (M X' X 1)."""
    islands = products.shape[0]
    norms = products.diagonal().clamp(min=0).sqrt()
    inverse = torch.where(norms > 0, 1 / norms, torch.zeros_like(norms))
    scaled = products * inverse[:, None] * inverse
    weights = torch.ones(islands, dtype=products.dtype)
    for _ in range(ITERATIONS):
        squares, vectors = torch.linalg.eigh(scaled * weights[:, None] * weights)
        kept = torch.arange(islands) >= islands - rank(islands)  # eigenvalues ascend
        kept &= squares > squares[-1] * islands * torch.finfo(squares.dtype).eps
        some = weights[:, None] * vectors[:, kept]
        middle = some / squares[kept] @ some.T
        sines = 1 - (scaled @ middle * scaled).sum(1)
        weights = (sines.abs() + SMALL) ** -0.25
    found: Tensor = middle @ scaled.sum(1) * inverse * norms.median() / islands
    return found
