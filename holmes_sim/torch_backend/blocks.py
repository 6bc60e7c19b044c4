"""A GPT of the plan's shape as blocks: embedding, layers and head. Each block holds this rank's shard of every weight.

The initial value of a weight depends on the seed and its name only (`initial_weight`), so that it is the same under every
parallel layout. The architecture follows `sim.workload.model`: with mlp `gelu`, LayerNorm and biases in every linear layer;
otherwise RMSNorm and no biases. Positions are learned where the model has learned positions, otherwise rotary (Su et al., arXiv
2104.09864). There is no dropout. Activations between blocks have the shape (sequence, batch, hidden); with sequence parallelism
each tensor-parallel rank holds a slice of the sequence.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from holmes_sim.torch_backend.context_parallel import attend, positions, positions_of
from holmes_sim.torch_backend.discarded import discarding
from holmes_sim.torch_backend.slices import Cut
from holmes_sim.torch_backend.tensor_parallel import (
    TensorParallel,
    cross_entropy,
    enter_parallel_region,
    leave_parallel_region,
    linear,
)
from sim.plan.recomputation import kind_and_modules
from sim.workload.model import Model

INITIAL_STD = 0.02
"""Standard deviation of initial weights (Shoeybi et al., arXiv 1909.08053, section 4.2)."""
ROTARY_BASE = 10_000.0


def initial_weight(seed: int, name: str, shape: tuple[int, ...], center: float = 0.0) -> Tensor:
    """An unsharded initial weight, drawn from a generator that is seeded by `seed` and `name`. Norms and biases are drawn too,
    so that tests can distinguish any two weights."""
    stream = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    return torch.empty(shape).normal_(center, INITIAL_STD, generator=stream)


class Block(nn.Module):
    """A part of the model that a stage runs as a unit. `replicated` contains the names of weights that tensor-parallel ranks do
    not shard, `routed` those of routed experts, which the ranks of an expert mesh divide; `recomputed` the modules that the
    backward computes again (`sim.plan.recomputation.MODULES`), or "layer" for all of a layer."""

    words: Tensor
    positions: Tensor
    qkv: Tensor
    up: Tensor
    recomputed: frozenset[str] = frozenset()

    def __init__(self, model: Model, parallel: TensorParallel, seed: int, name: str):
        super().__init__()
        self.model, self.parallel, self.seed, self.name = model, parallel, seed, name
        self.replicated: set[str] = set()
        self.routed: set[str] = set()
        self.cuts: dict[str, Cut] = {}

    def add_weight(self, name: str, shapes: tuple[tuple[int, ...], ...], dim: int | None = None, center: float = 0.0) -> None:
        """Add a weight: for each of `shapes` this rank's shard along `dim` (all of it where `dim` is None), concatenated along
        the first dimension."""
        parts = []
        for index, shape in enumerate(shapes):
            whole = initial_weight(self.seed, f"{self.name}.{name}.{index}", shape, center)
            parts.append(whole if dim is None else self.parallel.shard(whole, dim))
        self.register_parameter(name, nn.Parameter(torch.cat(parts).to(self.parallel.device)))
        self.cuts[name] = Cut(dim, tuple(part.shape[dim or 0] for part in parts))
        if dim is None:
            self.replicated.add(name)

    def add_norm(self, name: str) -> None:
        """Add the weights of a norm."""
        self.add_weight(name, ((self.model.hidden,),), center=1.0)
        if self.model.mlp == "gelu":
            self.add_weight(f"{name}_shift", ((self.model.hidden,),))

    def normed(self, x: Tensor, name: str) -> Tensor:
        """LayerNorm or RMSNorm of `x` over the hidden dimension."""
        weight, width = getattr(self, name), (self.model.hidden,)
        if self.model.mlp == "gelu":
            return functional.layer_norm(x, width, weight, getattr(self, f"{name}_shift"))
        return functional.rms_norm(x, width, weight, 1e-5)

    def activated(self, x: Tensor) -> Tensor:
        """The input of an MLP's second product, from the result of its first."""
        if self.model.mlp == "gelu":
            return functional.gelu(x)
        if self.model.mlp == "relu2":
            return functional.relu(x).square()
        gate, value = x.chunk(2, -1)
        return functional.silu(gate) * value

    def named(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield (name in the model, weight)."""
        for name, weight in self.named_parameters():
            yield f"{self.name}.{name}", weight


class Embedding(Block):
    """Word embedding, and learned positions where the model has them. The vocabulary is sharded over tensor-parallel ranks."""

    def __init__(self, model: Model, parallel: TensorParallel, seed: int):
        super().__init__(model, parallel, seed, "embedding")
        self.add_weight("words", ((model.vocab, model.hidden),), 0)
        if model.learned_positions:
            self.add_weight("positions", ((model.learned_positions, model.hidden),))

    def forward(self, tokens: Tensor) -> Tensor:
        """Activations of tokens (sequence, batch)."""
        words, parallel = self.words, self.parallel
        here = tokens - parallel.rank * words.shape[0]
        own = (here >= 0) & (here < words.shape[0])
        x = functional.embedding(here.clamp(0, words.shape[0] - 1), words) * own.unsqueeze(-1)
        x = leave_parallel_region(x, parallel)
        if not self.model.learned_positions:
            return x
        places = positions_of(tokens.shape[0], parallel, tokens.device) % self.model.learned_positions
        if parallel.sequence:
            places = parallel.shard(places, 0)
        return x + functional.embedding(places, self.positions).unsqueeze(1)


class Layer(Block):
    """One transformer layer: attention and MLP, each after a norm and with a residual connection. A layer with routed experts
    is an `experts.ExpertLayer`.

    `recompute`: none, selective, full, or modules of selective recomputation, joined by +, as in `stage_recompute`."""

    feed_forward_module = "mlp"
    """Name of the module behind the second norm."""

    def __init__(self, model: Model, parallel: TensorParallel, seed: int, index: int, recompute: str):
        super().__init__(model, parallel, seed, f"layers.{index}")
        q, kv = model.query_size, model.kv_size
        kind, modules = kind_and_modules(recompute)
        self.recomputed = frozenset({"none": (), "full": ("layer",)}.get(kind, modules or ("core_attn",)))
        self.add_norm("norm1")
        self.add_weight("qkv", ((q, model.hidden), (kv, model.hidden), (kv, model.hidden)), 0)
        self.add_weight("projection", ((model.hidden, q),), 1)
        self.add_norm("norm2")
        if model.mlp == "gelu":
            self.add_weight("qkv_bias", ((q,), (kv,), (kv,)), 0)
            self.add_weight("projection_bias", ((model.hidden,),))
        if width := model.shared_ffn_hidden if model.experts else model.ffn_hidden:
            self._add_mlp(width)

    def _add_mlp(self, width: int) -> None:
        """Add the weights of an MLP that processes every token."""
        hidden, gated = self.model.hidden, self.model.mlp == "swiglu"
        self.add_weight("up", ((width, hidden),) * (2 if gated else 1), 0)
        self.add_weight("down", ((hidden, width),), 1)
        if self.model.mlp == "gelu":
            self.add_weight("up_bias", ((width,),), 0)
            self.add_weight("down_bias", ((hidden,),))

    def forward(self, x: Tensor) -> Tensor:
        """Activations after the layer, from activations before it."""
        return self._module("layer", self._layer, x)

    def _module(self, name: str, work: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """`work` of `x`, which the backward computes again where the module `name` is recomputed."""
        if name in self.recomputed and torch.is_grad_enabled():
            return checkpoint(work, x, use_reentrant=False)  # type: ignore[no-any-return]
        return work(x)

    def _layer(self, x: Tensor) -> Tensor:
        x = x + self._behind(x, "norm1", lambda normed: self._parallel_region(self._attend, normed, "projection"))
        return x + self._behind(x, "norm2", lambda normed: self._module(self.feed_forward_module, self._feed_forward, normed))

    def _behind(self, x: Tensor, norm: str, work: Callable[[Tensor], Tensor]) -> Tensor:
        """`work` of the result of a norm."""
        normed = self.normed(x, norm)
        with discarding(normed, (lambda: self.normed(x, norm)) if "layernorm" in self.recomputed else None):
            return work(normed)

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self._parallel_region(self._mlp, x, "down")

    def _parallel_region(self, work: Callable[[Tensor], Tensor], x: Tensor, last: str) -> Tensor:
        """A region sharded over tensor-parallel ranks: `work`, then the linear layer named `last`, whose partial results are
        summed."""
        x = work(enter_parallel_region(x, self.parallel))
        x = leave_parallel_region(self.product(x, last), self.parallel)
        return x + getattr(self, f"{last}_bias") if self.model.mlp == "gelu" else x

    def product(self, x: Tensor, name: str, bias: Tensor | None = None) -> Tensor:
        """The linear layer `name` of the layer."""
        return linear(x, getattr(self, name), bias, self.parallel)

    def _attend(self, x: Tensor) -> Tensor:
        qkv = self.product(x, "qkv", getattr(self, "qkv_bias", None))
        return self._module("core_attn", self._core, qkv)

    def _core(self, qkv: Tensor) -> Tensor:
        model, ranks = self.model, self.parallel.ranks
        sizes = [model.query_size // ranks, model.kv_size // ranks, model.kv_size // ranks]
        q, k, v = (part.unflatten(-1, (-1, model.head_dim)).permute(1, 2, 0, 3) for part in qkv.split(sizes, -1))
        if not model.learned_positions:
            at = _places(q.shape[-2], self.parallel)
            q, k = _rotated(q, at), _rotated(k, at)
        out = attend(q, k, v, self.parallel, model.heads != model.kv_heads)
        return out.permute(2, 0, 1, 3).flatten(2)

    def _mlp(self, x: Tensor) -> Tensor:
        return self.activated(self.product(x, "up", getattr(self, "up_bias", None)))


def _places(length: int, parallel: TensorParallel) -> tuple[int, int, int]:
    """(length of the whole sequence, cp rank, number of cp ranks) of a rank that has `length` tokens of each sequence."""
    context = parallel.context
    return (length, 0, 1) if context is None else (length * context.ranks, context.rank, context.ranks)


def _rotated(x: Tensor, at: tuple[int, int, int]) -> Tensor:
    """Queries or keys (batch, heads, sequence, head_dim) with the rotary position embedding applied; at: `_places`."""
    half = x.shape[-1] // 2
    cos, sin = _rotation(at, half, x.device, x.dtype)
    one, two, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([one * cos - two * sin, one * sin + two * cos, rest], -1)


@functools.lru_cache(maxsize=8)
def _rotation(at: tuple[int, int, int], half: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines (sequence, half) of the angles of the positions of a rank; the same for all layers."""
    speeds = ROTARY_BASE ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
    angles = positions(*at, device).float().unsqueeze(-1) * speeds
    return angles.cos().to(dtype), angles.sin().to(dtype)


class Head(Block):
    """Final norm, logits and loss: cross entropy summed over tokens and divided by `tokens`."""

    def __init__(self, model: Model, parallel: TensorParallel, seed: int, tokens: int):
        super().__init__(model, parallel, seed, "head")
        self.tokens = tokens
        self.add_norm("norm")
        name = self.name
        self.name = "embedding" if model.tied_embeddings else name  # a tied weight has the initial values of the embedding
        self.add_weight("words", ((model.vocab, model.hidden),), 0)
        self.name = name

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """The microbatch's contribution to the loss of the whole batch, from activations and targets (sequence, batch)."""
        x = enter_parallel_region(self.normed(x, "norm"), self.parallel)
        logits = linear(x, self.words, None, self.parallel)
        return cross_entropy(logits, targets, self.parallel) / self.tokens
