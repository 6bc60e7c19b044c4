"""A transformer layer with routed experts: each token goes to the `experts_per_token` experts that its router prefers.

The router is a linear layer and a softmax in fp32. Its shares of the chosen experts, normalised to sum 1, weight their results
(Mixtral, arXiv 2401.04088, section 2.1). A single chosen expert has its share as weight (Switch, arXiv 2101.03961, section
2.1), because a normalised one would be 1 and give the router no gradient. No token is dropped, and no loss balances the
experts.

Tokens travel as in Megatron-Core's alltoall dispatcher: every rank sorts copies of its tokens by expert and sends them to the
ep ranks that hold the experts; etp ranks gather what they received; each expert processes its tokens; and the results go back
the same way. Weight gradients of experts may be deferred like those of `tensor_parallel.linear`; those of the router and of
biases are computed in B.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from holmes_sim.torch_backend.blocks import Block, Layer, initial_weight
from holmes_sim.torch_backend.discarded import discarding
from holmes_sim.torch_backend.expert_mesh import ExpertMesh, exchange
from holmes_sim.torch_backend.slices import WHOLE, Cut
from holmes_sim.torch_backend.tensor_parallel import TensorParallel, enter_parallel_region, leave_parallel_region
from sim.workload.model import Model

ALIGNED = 16
"""Bytes of which the addresses of matrices and of their rows are multiples where `grouped_mm` multiplies them."""


class RoutedExperts(Block):
    """Routed experts of a layer, or those of them that a rank holds. `slices`: the ranks over which each expert is sharded."""

    expert_up: Tensor
    expert_down: Tensor
    slices: TensorParallel

    def add_experts(self, experts: range, slices: TensorParallel) -> None:
        """Add the weights of `experts`, of each of them this rank's shard."""
        self.slices, hidden, width = slices, self.model.hidden, self.model.ffn_hidden
        self._add_expert_weight("expert_up", ((width, hidden),) * (2 if self.model.mlp == "swiglu" else 1), 0, experts)
        self._add_expert_weight("expert_down", ((hidden, width),), 1, experts)
        if self.model.mlp == "gelu":
            self._add_expert_weight("expert_up_bias", ((width,),), 0, experts)
            self._add_expert_weight("expert_down_bias", ((hidden,),), None, experts)

    def _add_expert_weight(self, name: str, shapes: tuple[tuple[int, ...], ...], dim: int | None, experts: range) -> None:
        """Add a weight (expert, ..): for each of `shapes` this rank's shard along `dim` (all of it where `dim` is None),
        concatenated."""
        found = []
        for expert in experts:
            wholes = [initial_weight(self.seed, f"{self.name}.{name}.{expert}.{i}", shape) for i, shape in enumerate(shapes)]
            found.append(torch.cat([whole if dim is None else self.slices.shard(whole, dim) for whole in wholes]))
        self.register_parameter(name, nn.Parameter(torch.stack(found).to(self.parallel.device)))
        sizes = (found[0].shape[dim or 0] // len(shapes),) * len(shapes)  # the parts of an expert's weight have equal shapes
        self.cuts[name] = WHOLE if dim is None else Cut(dim + 1, sizes)
        self.routed.add(name)

    def products(self, rows: Tensor, sizes: list[int]) -> Tensor:
        """This rank's part of the results for rows sorted by expert, `sizes[e]` of them for its expert e."""
        x = grouped_linear(rows, self.expert_up, sizes, self.parallel)
        if self.model.mlp != "gelu":
            return self._down(x, sizes)
        experts = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)).to(rows.device)
        x = self._down(x + self.get_parameter("expert_up_bias").index_select(0, experts), sizes)
        bias = self.get_parameter("expert_down_bias").index_select(0, experts)
        if self.slices.rank:  # the first etp rank adds the bias; all of them compute its whole gradient
            bias = bias - bias.detach()
        return x + bias

    def _down(self, x: Tensor, sizes: list[int]) -> Tensor:
        """The second product, from the results of the first one."""
        active = self.activated(x)
        with discarding(active, (lambda: self.activated(x)) if "moe_act" in self.recomputed else None):
            return grouped_linear(active, self.expert_down, sizes, self.parallel)


class RoutingLayer(Layer):
    """A layer with a router, and shared experts for every token where the model has them (one MLP of their total width)."""

    router: Tensor
    feed_forward_module = "moe"

    def __init__(self, model: Model, parallel: TensorParallel, seed: int, index: int, recompute: str):
        super().__init__(model, parallel, seed, index, recompute)
        self.add_weight("router", ((model.experts, model.hidden),))

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(weights, experts) of each token's chosen experts, both (tokens, experts per token), from tokens (tokens, hidden)."""
        shares = functional.linear(tokens.float(), self.router.float()).softmax(-1)
        gates, chosen = shares.topk(self.model.experts_per_token, -1)
        if self.model.experts_per_token > 1:
            gates = gates / gates.sum(-1, keepdim=True)
        return gates.to(tokens.dtype), chosen


class ExpertLayer(RoutingLayer, RoutedExperts):
    """A layer whose MLP is routed experts, which the ranks of an expert mesh divide, and shared experts where the model has
    them."""

    def __init__(
        self, model: Model, parallel: TensorParallel, seed: int, index: int, recompute: str, mesh: ExpertMesh | None = None
    ):
        super().__init__(model, parallel, seed, index, recompute)
        self.mesh = mesh or ExpertMesh()
        number = model.experts // self.mesh.ranks
        self.add_experts(range(self.mesh.rank * number, (self.mesh.rank + 1) * number), self.mesh.slices)

    def _feed_forward(self, x: Tensor) -> Tensor:
        tokens, parallel = x.flatten(0, 1), self.parallel
        gates, chosen = self.route(tokens)
        if parallel.sequence:
            y = self._experts(tokens, gates, chosen)
        else:  # tensor-parallel ranks route the same tokens, and each has a part of every result
            entered, gates = enter_parallel_region(tokens, parallel), enter_parallel_region(gates, parallel)
            y = leave_parallel_region(self._experts(entered, gates, chosen), parallel)
        return y.view_as(x) + super()._feed_forward(x) if self.model.shared_ffn_hidden else y.view_as(x)

    def _experts(self, tokens: Tensor, gates: Tensor, chosen: Tensor) -> Tensor:
        """The weighted sum of the results of each token's experts (tokens, hidden)."""
        mesh = self.mesh
        rows, order, counts = sorted_copies(tokens, chosen, self.model.experts)
        sizes = mesh.exchange_sizes(counts)
        sent = counts.view(mesh.ranks, -1).sum(1).tolist()
        received = sizes[mesh.slices.rank if mesh.gathers else 0].sum(1).tolist()
        rows = exchange(rows, sent, received, mesh)
        rows = exchange(self._on_slices(rows, sizes), received, sent, mesh)
        return weighted_sums(rows, order, gates)

    def _on_slices(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Results of this rank's experts for the rows that this rank has received. `sizes`: `ExpertMesh.exchange_sizes`.

        etp ranks gather their rows, padded to as many as the rank with most of them has, and reduce-scatter the results."""
        slices, own = self.mesh.slices, rows.shape[0]
        most = max(int(sizes.sum((1, 2)).max()), 1)  # a collective of no rows is not defined everywhere
        if self.mesh.gathers:
            rows = enter_parallel_region(functional.pad(rows, (0, 0, 0, most - own)), slices)
        order = order_by_expert(sizes, most).to(rows.device)
        results = self.products(rows.index_select(0, order), sizes.sum((0, 1)).tolist())
        results = torch.zeros_like(rows).index_copy(0, order, results)
        return leave_parallel_region(results, slices)[:own] if self.mesh.gathers else results


def sorted_copies(tokens: Tensor, chosen: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    """(a copy of each token for each of its `chosen` experts, sorted by expert; the copies in this order; copies for each of
    `experts` experts), of tokens (tokens, hidden)."""
    copies = tokens.unsqueeze(1).expand(-1, chosen.shape[1], -1).reshape(-1, tokens.shape[1])
    order = chosen.flatten().argsort(stable=True)
    return copies.index_select(0, order), order, torch.bincount(chosen.flatten(), minlength=experts)


def weighted_sums(rows: Tensor, order: Tensor, gates: Tensor) -> Tensor:
    """The sums (tokens, hidden) of the results of each token's experts, weighted by `gates`. `rows` are those of
    `sorted_copies`, in its `order`."""
    results = torch.zeros_like(rows).index_copy(0, order, rows).view(*gates.shape, -1)
    return (results * gates.unsqueeze(-1)).sum(1)


def order_by_expert(sizes: Tensor, most: int) -> Tensor:
    """Indices of rows in the order of their experts. `sizes` (etp rank, ep rank, expert) counts the rows, which are in this
    order; the rows of each etp rank begin at a multiple of `most`."""
    owner = torch.arange(sizes.shape[2]).expand_as(sizes).flatten().repeat_interleave(sizes.flatten())
    index = torch.cat([torch.arange(int(number)) + most * rank for rank, number in enumerate(sizes.sum((1, 2)))])
    return index[owner.argsort(stable=True)]


class _GroupedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, sizes: list[int], parallel: TensorParallel) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.sizes, ctx.parallel, ctx.weight = sizes, parallel, weight
        return grouped_product(x, weight.transpose(1, 2), sizes)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        sizes, leaf = ctx.sizes, ctx.weight
        grad = grad.contiguous()
        input_gradient = grouped_product(grad, weight, sizes) if ctx.needs_input_grad[0] else None
        if ctx.parallel.deferred is None:
            return input_gradient, grouped_weight_gradient(grad, x, sizes), None, None

        def weight_gradient() -> None:
            leaf.collect(grouped_weight_gradient(grad, x, sizes))

        deferred: list[Callable[[], None]] = ctx.parallel.deferred
        deferred.append(weight_gradient)
        return input_gradient, None, None, None


def grouped_linear(x: Tensor, weight: Tensor, sizes: list[int], parallel: TensorParallel) -> Tensor:
    """Rows of x (rows, in) times the transpose of their expert's weight, of weight (expert, out, in).

    sizes: number of rows of each expert, in order. The weight gradient may be deferred (`tensor_parallel.linear`)."""
    found: Tensor = _GroupedLinear.apply(x, weight, sizes, parallel)  # type: ignore[no-untyped-call]
    return found


def grouped_product(x: Tensor, weights: Tensor, sizes: list[int]) -> Tensor:
    """Rows of x (rows, in) times their expert's matrix, of weights (expert, in, out)."""
    if _one_kernel(x, weights):
        return functional.grouped_mm(x, weights, offs=_offsets(sizes, x.device))
    found = x.new_empty((x.shape[0], weights.shape[2]))
    for rows, weight, results in zip(x.split(sizes), weights, found.split(sizes), strict=True):
        torch.mm(rows, weight, out=results)
    return found


def grouped_weight_gradient(grad: Tensor, x: Tensor, sizes: list[int]) -> Tensor:
    """The transpose of each expert's rows of grad (rows, out) times its rows of x (rows, in): (expert, out, in)."""
    if _one_kernel(x, grad):
        return functional.grouped_mm(grad.t(), x, offs=_offsets(sizes, x.device))
    return torch.stack([mine.t() @ rows for mine, rows in zip(grad.split(sizes), x.split(sizes), strict=True)])


def _offsets(sizes: list[int], device: torch.device) -> Tensor:
    return torch.tensor(sizes).cumsum(0).to(device, torch.int32)


def _one_kernel(x: Tensor, other: Tensor) -> bool:
    """Whether one kernel multiplies the rows or matrices of all experts: torch has it (2.10 and later) for bf16 on GPUs.

    Weights lie in flat buffers, where they may begin at any address."""
    if not (hasattr(functional, "grouped_mm") and x.is_cuda and x.dtype == torch.bfloat16 and x.shape[0]):
        return False
    steps = [2 * stride for value in (x, other) for stride in value.stride() if stride > 1]
    return all(number % ALIGNED == 0 for number in (*steps, x.data_ptr(), other.data_ptr()))
