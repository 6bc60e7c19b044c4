"""TODO sim.workload.kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sim.units import Bytes, Flops
from sim.workload.model import Model


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
