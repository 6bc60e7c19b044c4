"""Forward kernels of one transformer layer, the embedding and the head, by shape.

A layer is a list of matrix products by (m, n, k), one attention core and elementwise passes by bytes. FLOPs, seconds and saved
activation bytes are all computed from that list, so they cannot disagree.

Notation: b microbatch size, s sequence length, h hidden size, a heads, t tensor-parallel degree, v vocabulary, following
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv 2205.05198 (section 4: activation
bytes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sim.units import Bytes, Flops
from sim.workload.model import Model


@dataclass(frozen=True, slots=True)
class Gemm:
    """`count` matrix products, (m x k) by (k x n) each; `saved` bytes are kept for the backward pass."""

    name: str
    m: int
    n: int
    k: int
    count: int = 1
    saved: Bytes = 0.0

    @property
    def flops(self) -> Flops:
        """FLOPs of all products; a multiplication and an addition count as two."""
        return 2.0 * self.m * self.n * self.k * self.count

    @property
    def values(self) -> float:
        """Number of elements of the three matrices of one product."""
        return float(self.m * self.k + self.k * self.n + self.m * self.n)


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention core of one microbatch: `batch` sequences, the `heads` query heads and `kv_heads` of one rank.

    With context parallelism `cp` ranks share the queries of each sequence in zigzag order, so that each computes 1/cp of the
    causal scores. `saved` bytes are kept for the backward pass.
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
        """Number of attention scores of this rank, the masked half included."""
        return float(self.batch * self.heads) * self.seq_len**2 / self.cp

    @property
    def flops(self) -> Flops:
        """FLOPs of the scores and the weighted values, without the masked half (causal attention)."""
        return 2.0 * self.scores * self.head_dim


@dataclass(frozen=True, slots=True)
class Pass:
    """An elementwise kernel that reads and writes `moved` bytes of memory; `saved` bytes are kept for the backward pass."""

    name: str
    moved: Bytes
    saved: Bytes = 0.0


Kernel: TypeAlias = Gemm | Attention | Pass


@dataclass(frozen=True, slots=True)
class LayerSharding:
    """How tensor, sequence, context and expert parallelism divide one layer; `etp` ranks divide each routed expert.

    imbalance: tokens of the busiest rank over the mean. fused_dispatch: the exchange of tokens itself sorts them by expert."""

    tp: int = 1
    sequence_parallel: bool = False
    cp: int = 1
    ep: int = 1
    etp: int = 1
    imbalance: float = 1.0
    fused_dispatch: bool = False


def layer_kernels(model: Model, b: int, s: int, sharding: LayerSharding, nbytes: int) -> tuple[Kernel, ...]:
    """Forward kernels of one layer on one rank, for a microbatch of `b` sequences of `s` tokens at `nbytes` bytes a value.

    A rank holds s / cp tokens of each sequence, and multiplies their queries with all keys. It holds 1 / ep of the experts, and
    processes the tokens that `ep` ranks send it, gathered from `etp` ranks. With sequence parallelism a rank routes its own
    slice of the tokens. It copies each token once for each of its experts, and adds up their results: a pass reads or writes
    tokens and copies. Where it holds several experts, it sorts what came for them, and sorts the results back: two passes that
    read and write all copies (Megatron-Core, MoEAlltoAllTokenDispatcher of megatron/core/transformer/moe/token_dispatcher.py).

    Saved bytes add up to arXiv 2205.05198, equation 2, without the attention scores, which a fused attention kernel does not
    keep: s b h (10 + 24/t) at 2 bytes a value, or s b h 34/t with sequence parallelism. Dropout masks take one byte a value.
    Passes are fused as in Megatron-LM: a norm reads and writes once; bias + dropout + residual reads twice, writes once and
    keeps a mask; the activation function reads the up projection and writes its result.
    """
    t, sequence_parallel, cp, ep = sharding.tp, sharding.sequence_parallel, sharding.cp, sharding.ep
    tokens = b * s // cp
    h = model.hidden
    outside = tokens * h // t if sequence_parallel else tokens * h  # values of the region between tensor-parallel blocks
    q, kv = model.query_size // t, max(model.kv_size // t, model.head_dim)
    routed = max(model.experts_per_token, 1)
    own = tokens // t if sequence_parallel else tokens  # tokens that this rank routes
    gathered = own * (sharding.etp if sequence_parallel or t == 1 else 1)  # tokens of the ranks that divide an expert
    mlp_tokens = round(gathered * routed * sharding.imbalance)  # of the busiest rank, whose experts get equal shares
    local = max(model.experts // ep, 1)
    sorts = 4.0 if local > 1 and not sharding.fused_dispatch else 0.0
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
        kernels.append(Gemm("router", own, model.experts, h))
        kernels.append(Pass("dispatch", (2.0 * own * (1 + routed) + sorts * mlp_tokens) * h * nbytes))
    if model.shared_ffn_hidden:
        kernels += _mlp_kernels(model, tokens, 1, model.shared_ffn_hidden // t, nbytes, entered)
    if model.experts:
        kept = float(mlp_tokens * h * nbytes)
        kernels += _mlp_kernels(model, mlp_tokens, local, model.ffn_hidden // sharding.etp, nbytes, kept)
    else:
        kernels += _mlp_kernels(model, tokens, 1, model.ffn_hidden // t, nbytes, entered)
    kernels.append(Pass("residual", 3.0 * entered + mask, saved=mask))
    return tuple(kernels)


def _mlp_kernels(model: Model, tokens: int, experts: int, f: int, nbytes: int, entered: Bytes) -> list[Kernel]:
    """Kernels of `experts` MLPs of width `f` that divide `tokens` tokens evenly; `entered` bytes of input are kept."""
    rows, up = max(tokens // experts, 1), f * (2 if model.mlp == "swiglu" else 1)
    return [
        Gemm("up", rows, up, model.hidden, count=experts, saved=entered),
        Pass("activation", float(tokens * (up + f) * nbytes), saved=float(tokens * up * nbytes)),
        Gemm("down", rows, model.hidden, f, count=experts, saved=float(tokens * f * nbytes)),
    ]


def embedding_kernels(model: Model, b: int, s: int, nbytes: int) -> tuple[Kernel, ...]:
    """Kernels of the input embedding: gather and write rows, then dropout."""
    values = b * s * model.hidden * nbytes
    mask = float(b * s * model.hidden) if model.mlp == "gelu" else 0.0
    return (Pass("embedding", 2.0 * values + 2.0 * values + mask, saved=mask),)


def head_kernels(model: Model, b: int, s: int, t: int, nbytes: int) -> tuple[Kernel, ...]:
    """Kernels of the final norm, the logits and the cross-entropy loss on one of `t` tensor-parallel ranks.

    The loss reads the logits, keeps them in fp32 and makes three more fp32 passes: maximum, exponentials, gradient
    (arXiv 2205.05198, section 4.3: 4 s b h for norm and projection and 4 s b v for the logits, per rank divided by t).
    """
    tokens, h, v = b * s, model.hidden, model.vocab // t
    values = float(tokens * h * nbytes)
    return (
        Pass("norm", 2.0 * values, saved=values),
        Gemm("logits", tokens, v, h, saved=values),
        Pass("loss", float(tokens * v) * (nbytes + 4 + 3 * 4), saved=4.0 * tokens * v),
    )
