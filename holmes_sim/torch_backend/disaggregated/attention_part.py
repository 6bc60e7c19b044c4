"""Attention ranks: all but the routed experts, as the tasks A of `sim.disaggregation.tasks`, each with its own backward pass.

Task A of layer i (0 to L) computes the end of layer i, which adds the results of its experts, and the begin of layer i + 1, up
to the copies of tokens that leave for their experts. Between two tasks of a microbatch a rank keeps the residual and the gates.
The backward of a task takes the gradients of these and of the copies, and gives those of the results of experts."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from holmes_sim.torch_backend.blocks import Block, Embedding, Head
from holmes_sim.torch_backend.experts import RoutingLayer, sorted_copies, weighted_sums
from holmes_sim.torch_backend.tensor_parallel import TensorParallel
from sim.disaggregation.stage import DisaggregatedStage


class Routed(NamedTuple):
    """Tokens that wait for the results of their experts: the residual (sequence, batch, hidden), the weight of each token's
    experts (tokens, experts per token), and copies of tokens sorted by expert (copies, hidden), which leave, with their order
    and their number for each expert."""

    residual: Tensor
    gates: Tensor
    rows: Tensor
    order: Tensor
    counts: Tensor


class AttentionLayer(RoutingLayer):
    """A layer without its routed experts."""

    def before_experts(self, x: Tensor) -> Routed:
        """What leaves for the experts, and what stays, of activations (sequence, batch, hidden)."""
        x = x + self._parallel_region(self._attend, self.normed(x, "norm1"), "projection")
        normed = self.normed(x, "norm2")
        tokens = normed.flatten(0, 1)
        gates, chosen = self.route(tokens)
        rows, order, counts = sorted_copies(tokens, chosen, self.model.experts)
        return Routed(x + self._feed_forward(normed) if self.model.shared_ffn_hidden else x, gates, rows, order, counts)


class _Kept(NamedTuple):
    """What a task keeps for its backward: inputs (residual, gates, rows; none for the first), and outputs."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class AttentionPart:
    """The blocks of an attention rank, and what it keeps of microbatches."""

    def __init__(self, stage: DisaggregatedStage, seed: int, device: torch.device):
        self.stage, model, parallel = stage, stage.workload.model, TensorParallel(device=device)
        self.embedding = Embedding(model, parallel, seed)
        self.layers = [AttentionLayer(model, parallel, seed, index, "none") for index in range(model.layers)]
        self.head = Head(model, parallel, seed, stage.workload.tokens)
        if model.tied_embeddings:  # share one weight
            self.head.words = self.embedding.words
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._waiting: dict[int, Routed] = {}
        self._gradients: dict[int, tuple[Tensor | None, Tensor | None]] = {}

    @property
    def blocks(self) -> list[Block]:
        """All blocks in forward order."""
        return [self.embedding, *self.layers, self.head]

    def forward(self, layer: int, number: int, tokens: Tensor, results: Tensor | None) -> Routed | Tensor:
        """Task A of a layer and the microbatch `number`: what leaves for the experts of the next layer, or the loss after the
        last one. `tokens`: (sequence + 1, batch); `results`: rows of the experts of this layer, None for layer 0."""
        inputs: tuple[Tensor, ...] = ()
        if results is None:
            found = self._pass(layer, self.embedding(tokens[:-1]))
        else:
            before = self._waiting.pop(number)
            x, gates, rows = (value.detach().requires_grad_() for value in (before.residual, before.gates, results))
            inputs = x, gates, rows
            found = self._pass(layer, x, gates, rows, before.order)
        if isinstance(found, Tensor):
            loss: Tensor = self.head(found, tokens[1:])
            self._kept[layer, number] = _Kept(inputs, (loss,))
            return loss.detach()
        self._kept[layer, number] = _Kept(inputs, found[:3])
        detached = Routed(*(value.detach() for value in found))
        self._waiting[number] = detached
        return detached

    def _pass(
        self, layer: int, x: Tensor, gates: Tensor | None = None, rows: Tensor | None = None, order: Tensor | None = None
    ) -> Routed | Tensor:
        """The end of a layer and the begin of the next one, recomputed in the backward where the plan says so."""
        if layer < len(self.layers) and self.stage.recompute == "full":
            found: Routed = checkpoint(self._computed, layer, x, gates, rows, order, use_reentrant=False)
            return found
        return self._computed(layer, x, gates, rows, order)

    def _computed(
        self, layer: int, x: Tensor, gates: Tensor | None, rows: Tensor | None, order: Tensor | None
    ) -> Routed | Tensor:
        if gates is not None and rows is not None and order is not None:
            x = x + weighted_sums(rows, order, gates).view_as(x)
        return self.layers[layer].before_experts(x) if layer < len(self.layers) else x

    def backward(self, layer: int, number: int, gradient: Tensor | None) -> Tensor | None:
        """The backward of task A: gradients of the results of experts of this layer, None for layer 0. `gradient`: that of the
        copies of tokens that left for the next layer, None after the last one."""
        kept = self._kept.pop((layer, number))
        if gradient is None:
            torch.autograd.backward(kept.outputs)
        else:
            residual, gates = self._gradients.pop(number)
            torch.autograd.backward(kept.outputs, (residual, gates, gradient))
        if not kept.inputs:
            return None
        residual, gates, rows = (value.grad for value in kept.inputs)
        self._gradients[number] = residual, gates
        return rows
