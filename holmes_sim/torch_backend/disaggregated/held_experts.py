"""The routed experts that a rank holds: the tasks E of expert ranks, and X of attention ranks that keep some."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from holmes_sim.torch_backend.disaggregated.set_rank import SetRank
from holmes_sim.torch_backend.experts import RoutedExperts, order_by_expert
from holmes_sim.torch_backend.tensor_parallel import TensorParallel


class HeldExperts:
    """The experts of each layer (1 to L) that a rank holds, and what it keeps of microbatches."""

    def __init__(self, place: SetRank, seed: int, device: torch.device):
        self.recomputes, model = place.stage.recompute == "full", place.stage.workload.model
        self.layers: dict[int, RoutedExperts] = {}
        for layer in range(1, model.layers + 1):
            if experts := place.experts(layer):
                block = RoutedExperts(model, TensorParallel(device=device), seed, f"layers.{layer - 1}")
                block.add_experts(experts, TensorParallel())
                self.layers[layer] = block
        self._kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def forward(self, layer: int, number: int, rows: Tensor, sizes: Tensor) -> Tensor:
        """Results for the rows (copies, hidden) of the microbatch `number`, in their order: by sender, then by expert.

        sizes: number of rows (sender, expert of this rank), in host memory."""
        leaf = rows.requires_grad_()
        arguments = self.layers[layer], leaf, sizes
        found = checkpoint(_results, *arguments, use_reentrant=False) if self.recomputes else _results(*arguments)
        self._kept[layer, number] = leaf, found
        return found.detach()

    def backward(self, layer: int, number: int, gradient: Tensor) -> Tensor:
        """Gradients of the rows, from those of their results."""
        leaf, found = self._kept.pop((layer, number))
        torch.autograd.backward(found, gradient)
        assert leaf.grad is not None
        return leaf.grad


def _results(block: RoutedExperts, rows: Tensor, sizes: Tensor) -> Tensor:
    order = order_by_expert(sizes.unsqueeze(0), max(rows.shape[0], 1)).to(rows.device)
    results = block.products(rows.index_select(0, order), sizes.sum(0).tolist())
    return torch.zeros_like(rows).index_copy(0, order, results)
