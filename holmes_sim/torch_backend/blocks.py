"""A GPT of the plan's shape, in blocks: embedding, layers, head. Each knows its part of every weight.

Weights are named and drawn one by one (`drawn`), so that a weight is the same however the model is cut. The family follows
`sim.workload.model`: with `gelu` LayerNorm with a shift and biases on every product, else RMSNorm and no biases; learned
positions where the model has them, else rotary ones (Su et al., arXiv 2104.09864). There is no dropout. Activations between
blocks are (sequence, batch, hidden), of the sequence a slice of each tensor-parallel rank with sequence parallelism.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from holmes_sim.torch_backend.products import Tensors, cross_entropy, enter, leave, product
from sim.workload.model import Model

SPREAD = 0.02
"""Standard deviation of weights at the start (Shoeybi et al., arXiv 1909.08053, section 4.2)."""
ROTARY_BASE = 10_000.0


def drawn(seed: int, name: str, shape: tuple[int, ...], center: float = 0.0) -> Tensor:
    """A whole weight: from a stream of its own, told by seed and name. Norms and biases too, so that no two are alike."""
    stream = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    return torch.empty(shape).normal_(center, SPREAD, generator=stream)


class Block(nn.Module):
    """A part of the model that a stage runs as one. `alike` names weights that tensor-parallel ranks hold whole."""

    words: Tensor
    positions: Tensor
    qkv: Tensor
    up: Tensor

    def __init__(self, model: Model, tensors: Tensors, seed: int, name: str):
        super().__init__()
        self.model, self.tensors, self.seed, self.name = model, tensors, seed, name
        self.alike: set[str] = set()

    def hold(self, name: str, shapes: tuple[tuple[int, ...], ...], dim: int | None = None, center: float = 0.0) -> None:
        """Make a weight: of each of `shapes`, side by side, this rank's part along `dim`; whole where that is None."""
        parts = []
        for index, shape in enumerate(shapes):
            whole = drawn(self.seed, f"{self.name}.{name}.{index}", shape, center)
            parts.append(whole if dim is None else self.tensors.cut(whole, dim))
        self.register_parameter(name, nn.Parameter(torch.cat(parts).to(self.tensors.device)))
        if dim is None:
            self.alike.add(name)

    def hold_norm(self, name: str) -> None:
        """Make the weights of a norm."""
        self.hold(name, ((self.model.hidden,),), center=1.0)
        if self.model.mlp == "gelu":
            self.hold(f"{name}_shift", ((self.model.hidden,),))

    def normed(self, x: Tensor, name: str) -> Tensor:
        """A norm over the hidden values."""
        weight, width = getattr(self, name), (self.model.hidden,)
        if self.model.mlp == "gelu":
            return functional.layer_norm(x, width, weight, getattr(self, f"{name}_shift"))
        return functional.rms_norm(x, width, weight, 1e-5)

    def named(self) -> Iterator[tuple[str, nn.Parameter]]:
        """(name in the model, weight)."""
        for name, weight in self.named_parameters():
            yield f"{self.name}.{name}", weight


class Embedding(Block):
    """Words, and learned positions where the model has them. The vocabulary is cut over tensor-parallel ranks."""

    def __init__(self, model: Model, tensors: Tensors, seed: int):
        super().__init__(model, tensors, seed, "embedding")
        self.hold("words", ((model.vocab, model.hidden),), 0)
        if model.learned_positions:
            self.hold("positions", ((model.learned_positions, model.hidden),))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (sequence, batch) -> activations."""
        words, tensors = self.words, self.tensors
        here = tokens - tensors.rank * words.shape[0]
        own = (here >= 0) & (here < words.shape[0])
        x = functional.embedding(here.clamp(0, words.shape[0] - 1), words) * own.unsqueeze(-1)
        x = leave(x, tensors)
        if not self.model.learned_positions:
            return x
        places = torch.arange(tokens.shape[0], device=tokens.device) % self.model.learned_positions
        if tensors.sequence:
            places = tensors.cut(places, 0)
        return x + functional.embedding(places, self.positions).unsqueeze(1)


class Layer(Block):
    """One transformer layer: attention and MLP, each behind a norm and beside a residual."""

    def __init__(self, model: Model, tensors: Tensors, seed: int, index: int, recompute: str):
        super().__init__(model, tensors, seed, f"layers.{index}")
        self.recompute = recompute
        q, kv, ups = model.query_size, model.kv_size, 2 if model.mlp == "swiglu" else 1
        self.hold_norm("norm1")
        self.hold("qkv", ((q, model.hidden), (kv, model.hidden), (kv, model.hidden)), 0)
        self.hold("projection", ((model.hidden, q),), 1)
        self.hold_norm("norm2")
        self.hold("up", ((model.ffn_hidden, model.hidden),) * ups, 0)
        self.hold("down", ((model.hidden, model.ffn_hidden),), 1)
        if model.mlp == "gelu":
            self.hold("qkv_bias", ((q,), (kv,), (kv,)), 0)
            self.hold("projection_bias", ((model.hidden,),))
            self.hold("up_bias", ((model.ffn_hidden,),), 0)
            self.hold("down_bias", ((model.hidden,),))

    def forward(self, x: Tensor) -> Tensor:
        """Activations -> activations."""
        if self.recompute == "full" and torch.is_grad_enabled():
            return checkpoint(self._layer, x, use_reentrant=False)  # type: ignore[no-any-return]
        return self._layer(x)

    def _layer(self, x: Tensor) -> Tensor:
        x = x + self._within(self._attend, self.normed(x, "norm1"), "projection")
        return x + self._within(self._mlp, self.normed(x, "norm2"), "down")

    def _within(self, work: Callable[[Tensor], Tensor], x: Tensor, last: str) -> Tensor:
        """A region that is cut over tensor-parallel ranks, up to and with its last product."""
        x = work(enter(x, self.tensors))
        x = leave(product(x, getattr(self, last), None, self.tensors), self.tensors)
        return x + getattr(self, f"{last}_bias") if self.model.mlp == "gelu" else x

    def _attend(self, x: Tensor) -> Tensor:
        qkv = product(x, self.qkv, getattr(self, "qkv_bias", None), self.tensors)
        if self.recompute == "selective" and torch.is_grad_enabled():
            return checkpoint(self._core, qkv, use_reentrant=False)  # type: ignore[no-any-return]
        return self._core(qkv)

    def _core(self, qkv: Tensor) -> Tensor:
        model, ranks = self.model, self.tensors.ranks
        sizes = [model.query_size // ranks, model.kv_size // ranks, model.kv_size // ranks]
        q, k, v = (part.unflatten(-1, (-1, model.head_dim)).permute(1, 2, 0, 3) for part in qkv.split(sizes, -1))
        if not model.learned_positions:
            q, k = _rotated(q), _rotated(k)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=model.heads != model.kv_heads)
        return out.permute(2, 0, 1, 3).flatten(2)

    def _mlp(self, x: Tensor) -> Tensor:
        x = product(x, self.up, getattr(self, "up_bias", None), self.tensors)
        if self.model.mlp == "gelu":
            return functional.gelu(x)
        if self.model.mlp == "relu2":
            return functional.relu(x).square()
        gate, value = x.chunk(2, -1)
        return functional.silu(gate) * value


def _rotated(x: Tensor) -> Tensor:
    """Queries or keys (batch, heads, sequence, head_dim) with their positions turned in."""
    half = x.shape[-1] // 2
    speeds = ROTARY_BASE ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32).unsqueeze(-1) * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    one, two, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([one * cos - two * sin, one * sin + two * cos, rest], -1)


class Head(Block):
    """Final norm, logits and loss: the sum over tokens of the cross entropy, divided by `tokens`."""

    def __init__(self, model: Model, tensors: Tensors, seed: int, tokens: int):
        super().__init__(model, tensors, seed, "head")
        self.tokens = tokens
        self.hold_norm("norm")
        name = self.name
        self.name = "embedding" if model.tied_embeddings else name  # a tied weight is drawn as the embedding's
        self.hold("words", ((model.vocab, model.hidden),), 0)
        self.name = name

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """Activations and targets (sequence, batch) -> the microbatch's part of the loss of the whole batch."""
        x = enter(self.normed(x, "norm"), self.tensors)
        logits = product(x, self.words, None, self.tensors)
        return cross_entropy(logits, targets, self.tensors) / self.tokens
