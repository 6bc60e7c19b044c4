"""What is trained: the model's shape and the workload of one optimizer step.

A model is `layers` equal transformer layers between an embedding and a language-model head. A layer is a list of
kernels (`layer_kernels`): matrix products by (m, n, k), one attention core, elementwise passes by bytes. FLOPs, seconds
and saved activation bytes are all read from that one list, so they cannot disagree.

Notation of the formulas: b microbatch size, s sequence length, h hidden size, a heads, t tensor-parallel degree, following
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv 2205.05198 (section 4 for
activation bytes), and Narayanan et al., arXiv 2104.04473 (section 3 for FLOPs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sim.units import Bytes, Flops

PRECISION_BYTES: dict[str, int] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2}
"""Bytes of one activation or weight as stored; fp8 training keeps weights and activations in bf16 and casts for the GEMM."""

MLP_KINDS = ("gelu", "swiglu", "relu2")


@dataclass(frozen=True, slots=True)
class Model:
    """A transformer language model. `vocab` is the padded vocabulary; `experts` 0 means a dense MLP.

    With experts `ffn_hidden` is the width of one; `shared_ffn_hidden` that of all experts together that every token passes.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn_hidden: int
    vocab: int
    mlp: str = "gelu"
    head_dim: int = 0
    tied_embeddings: bool = True
    learned_positions: int = 0
    experts: int = 0
    experts_per_token: int = 0
    shared_ffn_hidden: int = 0

    def __post_init__(self) -> None:
        if self.head_dim == 0:
            object.__setattr__(self, "head_dim", self.hidden // self.heads if self.heads > 0 else 0)
        for key in ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "head_dim"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, not {getattr(self, key)}")
        if self.mlp not in MLP_KINDS:
            raise ValueError(f"mlp {self.mlp!r} is unknown; known: {', '.join(MLP_KINDS)}")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads {self.kv_heads} does not divide heads {self.heads}")
        if bool(self.experts) != bool(self.experts_per_token) or self.experts_per_token > self.experts:
            raise ValueError(f"experts_per_token must lie in 1 to experts ({self.experts}), not {self.experts_per_token}")
        if self.shared_ffn_hidden < 0 or (self.shared_ffn_hidden and not self.experts):
            raise ValueError(f"shared_ffn_hidden {self.shared_ffn_hidden} is a width of shared experts; give experts")

    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key (or all value) heads together."""
        return self.kv_heads * self.head_dim

    @property
    def up_width(self) -> int:
        """Columns of the first MLP product: gate and up side by side where the MLP is gated."""
        return self.ffn_hidden * (2 if self.mlp == "swiglu" else 1)

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: attention and MLP matrices, biases of the GELU family, two norms, router."""
        attention = self.hidden * (self.query_size + 2 * self.kv_size) + self.query_size * self.hidden
        norms = 2 * self.hidden
        if self.mlp == "gelu":  # GPT style: biases on every product, norms with a shift
            attention += self.query_size + 2 * self.kv_size + self.hidden
            norms *= 2
        if self.experts:
            shared = self._mlp_parameters(self.shared_ffn_hidden) if self.shared_ffn_hidden else 0
            return attention + self.expert_parameters + shared + self.hidden * self.experts + norms
        return attention + self._mlp_parameters(self.ffn_hidden) + norms

    @property
    def expert_parameters(self) -> int:
        """Parameters of all routed experts of one layer: what expert parallelism divides."""
        return self.experts * self._mlp_parameters(self.ffn_hidden)

    def layer_parameters_on(self, ep: int) -> float:
        """Parameters of one layer on one of `ep` expert-parallel ranks."""
        return self.layer_parameters - self.expert_parameters * (1 - 1 / ep)

    def _mlp_parameters(self, width: int) -> int:
        matrices = (3 if self.mlp == "swiglu" else 2) * self.hidden * width
        return matrices + (width + self.hidden if self.mlp == "gelu" else 0)

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the input embedding (words and learned positions)."""
        return (self.vocab + self.learned_positions) * self.hidden

    @property
    def head_parameters(self) -> int:
        """Parameters of the output projection, stored on the last stage also where it is tied to the embedding."""
        return self.vocab * self.hidden + self.hidden * (2 if self.mlp == "gelu" else 1)

    @property
    def parameters(self) -> int:
        """Parameters of the whole model, tied ones counted once."""
        tied = self.vocab * self.hidden if self.tied_embeddings else 0
        return self.layers * self.layer_parameters + self.embedding_parameters + self.head_parameters - tied


@dataclass(frozen=True, slots=True)
class Workload:
    """One optimizer step: `global_batch_size` sequences of `seq_len` tokens through the model."""

    model: Model
    global_batch_size: int
    seq_len: int
    precision: str = "bf16"

    def __post_init__(self) -> None:
        for key in ("global_batch_size", "seq_len"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, not {getattr(self, key)}")
        if self.precision not in PRECISION_BYTES:
            raise ValueError(f"precision {self.precision!r} is unknown; known: {', '.join(PRECISION_BYTES)}")

    def __hash__(self) -> int:
        """Of a few fields: quicker than of all, since many results are cached by workload."""
        return hash((self.model.name, self.model.layers, self.global_batch_size, self.seq_len))

    @property
    def tokens(self) -> int:
        """Tokens of one step."""
        return self.global_batch_size * self.seq_len

    @property
    def bytes_per_value(self) -> int:
        """Bytes of one activation or weight."""
        return PRECISION_BYTES[self.precision]

    @property
    def flops(self) -> Flops:
        """Model FLOPs of one step, forward and backward, recomputation not counted.

        Three times the forward FLOPs of every matrix product; the attention core is counted without the causal saving, as
        MFU is usually reported (arXiv 2104.04473, section 3: 72 B s L h^2 (1 + s/6h + V/12Lh)).
        """
        model = self.model
        layer = sum(
            k.flops for k in layer_kernels(model, 1, self.seq_len, 1, False, self.bytes_per_value) if isinstance(k, Gemm)
        )
        attention = 4.0 * self.seq_len**2 * model.query_size
        logits = 2.0 * self.seq_len * model.hidden * model.vocab
        return 3.0 * self.global_batch_size * (model.layers * (layer + attention) + logits)


@dataclass(frozen=True, slots=True)
class Gemm:
    """`count` products of an (m x k) by a (k x n) matrix; `saved` bytes are kept for the backward pass."""

    name: str
    m: int
    n: int
    k: int
    count: int = 1
    saved: Bytes = 0.0

    @property
    def flops(self) -> Flops:
        """Multiply and add counted apart."""
        return 2.0 * self.m * self.n * self.k * self.count

    @property
    def values(self) -> float:
        """Values of the three matrices of one product."""
        return float(self.m * self.k + self.k * self.n + self.m * self.n)


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention core of one microbatch: `batch` sequences, `heads` query heads of this rank.

    `cp` ranks share the queries of each sequence, zig-zag, so that each has 1/cp of the causal scores.
    """

    name: str
    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    seq_len: int
    saved: Bytes = 0.0
    cp: int = 1

    @property
    def scores(self) -> float:
        """Attention scores of this rank, the masked half included."""
        return float(self.batch * self.heads) * self.seq_len**2 / self.cp

    @property
    def flops(self) -> Flops:
        """Scores and weighted values, the masked half left out (causal)."""
        return 2.0 * self.scores * self.head_dim


@dataclass(frozen=True, slots=True)
class Pass:
    """An elementwise pass that moves `moved` bytes through memory; `saved` bytes are kept for the backward pass."""

    name: str
    moved: Bytes
    saved: Bytes = 0.0


Kernel: TypeAlias = Gemm | Attention | Pass


def layer_kernels(
    model: Model, b: int, s: int, t: int, sequence_parallel: bool, nbytes: int, cp: int = 1, ep: int = 1
) -> tuple[Kernel, ...]:
    """Forward kernels of one layer on one of `t` tensor-parallel ranks, for a microbatch of `b` sequences of `s` tokens.

    Of the sequence a rank has s / cp tokens, and their queries against all keys. Of the experts it has one of `ep` parts, and
    the tokens that `ep` ranks send it.

    Saved bytes add up to arXiv 2205.05198, equation 2 without the attention scores, which a fused attention kernel does
    not keep: s b h (10 + 24/t) at 2 bytes a value, or s b h 34/t with sequence parallelism. Dropout masks take one byte.
    Fused passes as in Megatron-LM: norm reads and writes once; bias + dropout + residual reads twice, writes once and
    keeps a mask; the activation function reads the up projection and writes its result.
    """
    tokens = b * s // cp
    h = model.hidden
    outside = tokens * h // t if sequence_parallel else tokens * h  # values of the region between tensor-parallel blocks
    q, kv = model.query_size // t, max(model.kv_size // t, model.head_dim)
    routed = max(model.experts_per_token, 1)
    mlp_tokens = tokens * routed  # balanced routing: every expert gets an equal share
    entered = outside * nbytes
    mask = float(outside) if model.mlp == "gelu" else 0.0  # the Llama family trains without dropout
    kernels: list[Kernel] = [
        Pass("norm", 2.0 * entered, saved=entered),
        Gemm("qkv", tokens, q + 2 * kv, h, saved=entered),
        Pass("heads", 2.0 * tokens * (q + 2 * kv) * nbytes),
        Attention(
            "attention",
            b,
            model.heads // t,
            max(model.kv_heads // t, 1),
            model.head_dim,
            s,
            saved=float(tokens * (q + 2 * kv) * nbytes),
            cp=cp,
        ),
        Gemm("projection", tokens, h, q, saved=float(tokens * q * nbytes)),
        Pass("residual", 3.0 * entered + mask, saved=mask),
        Pass("norm", 2.0 * entered, saved=entered),
    ]
    if model.experts:
        kernels.append(Gemm("router", tokens, model.experts, h))
        kernels.append(Pass("dispatch", 4.0 * mlp_tokens * h * nbytes))
    if model.shared_ffn_hidden:
        kernels += _mlp_kernels(model, tokens, 1, model.shared_ffn_hidden // t, nbytes, entered)
    kernels += _mlp_kernels(model, mlp_tokens, max(model.experts // ep, 1), model.ffn_hidden // t, nbytes, entered * routed)
    kernels.append(Pass("residual", 3.0 * entered + mask, saved=mask))
    return tuple(kernels)


def _mlp_kernels(model: Model, tokens: int, experts: int, f: int, nbytes: int, entered: Bytes) -> list[Kernel]:
    """Kernels of `experts` MLPs of width `f` that share `tokens` tokens; `entered` bytes of input are kept."""
    rows, up = max(tokens // experts, 1), f * (2 if model.mlp == "swiglu" else 1)
    return [
        Gemm("up", rows, up, model.hidden, count=experts, saved=entered),
        Pass("activation", float(tokens * (up + f) * nbytes), saved=float(tokens * up * nbytes)),
        Gemm("down", rows, model.hidden, f, count=experts, saved=float(tokens * f * nbytes)),
    ]


def embedding_kernels(model: Model, b: int, s: int, nbytes: int) -> tuple[Kernel, ...]:
    """Kernels of the input embedding: rows are gathered and written, then dropout."""
    values = b * s * model.hidden * nbytes
    mask = float(b * s * model.hidden) if model.mlp == "gelu" else 0.0
    return (Pass("embedding", 2.0 * values + 2.0 * values + mask, saved=mask),)


def head_kernels(model: Model, b: int, s: int, t: int, nbytes: int) -> tuple[Kernel, ...]:
    """Kernels of the final norm, the logits and the cross-entropy loss on one of `t` tensor-parallel ranks.

    The loss reads the logits, keeps them as fp32 and makes three more fp32 passes: maximum, exponentials, gradient
    (arXiv 2205.05198, section 4.3: 4 s b h for norm and projection and 4 s b v for the logits, per rank divided by t).
    """
    tokens, h, v = b * s, model.hidden, model.vocab // t
    values = float(tokens * h * nbytes)
    return (
        Pass("norm", 2.0 * values, saved=values),
        Gemm("logits", tokens, v, h, saved=values),
        Pass("loss", float(tokens * v) * (nbytes + 4 + 3 * 4), saved=4.0 * tokens * v),
    )
