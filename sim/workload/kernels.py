"""Forward kernels of one transformer layer, by shape; those of the embedding and the head: `sim.workload.end_kernels`.

A layer is a list of matrix products by (m, n, k), one attention core and elementwise passes by bytes. FLOPs, seconds and saved
activation bytes are all computed from that list, so they cannot disagree.

Notation: b microbatch size, s sequence length, h hidden size, a heads, t tensor-parallel degree, v vocabulary, following
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv 2205.05198 (section 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sim.units import Bytes, Flops
from sim.workload.model import Model


class Casts(NamedTuple):
    """How the inputs of a product are cast, where products are fp8: `input_parts` ranks cast a part of the input each, before
    they gather it, and `gradient_parts` ranks a part of the gradient of the result. normed: the input comes from a norm.
    activation: what the activation function of routed experts writes, the "input" or the "gradient" of the result."""

    input_parts: int = 1
    gradient_parts: int = 1
    normed: bool = False
    activation: str = ""


PLAIN = Casts()
"""Casts of a product whose rank holds its whole input and gradient, which no norm writes."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """`count` matrix products, (m x k) by (k x n) each; `saved` bytes are kept for the backward pass.

    frozen: the weight (k x n) is not trained, so the backward computes no gradient of it. casts: of its inputs; None: its
    inputs stay as they are. thin: one side is the rank of an adapter, too short for the curve of matrix products."""

    name: str
    m: int
    n: int
    k: int
    count: int = 1
    saved: Bytes = 0.0
    frozen: bool = False
    casts: Casts | None = PLAIN
    thin: bool = False

    @property
    def flops(self) -> Flops:
        """FLOPs of all products; a multiplication and an addition count as two."""
        return 2.0 * self.m * self.n * self.k * self.count

    @property
    def directions(self) -> int:
        """Products of one size in forward and backward: the result, the gradient of the input, and that of the weight."""
        return 2 if self.frozen else 3

    @property
    def values(self) -> float:
        """Number of elements of the three matrices of one product."""
        return float(self.m * self.k + self.k * self.n + self.m * self.n)


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention core of one microbatch: `batch` sequences, the `heads` query heads and `kv_heads` of one rank.

    With context parallelism `cp` ranks share the queries of each sequence in zigzag order, so that each computes 1/cp of the
    causal scores. `saved` bytes are kept for the backward pass. `value_dim`: dimension of a value head, if not `head_dim`.
    `window`: a token attends to so many tokens up to itself; 0: to all. `steps`: kernels, one after the other, each for a part
    of the keys: one for each rank of a ring of n, which multiplies s / n queries with half as many keys, or half of the queries
    with s / n keys (causal in the first step; Transformer Engine, AttnFuncWithCPAndKVP2P). The ranks wait for the one that has
    the shorter keys. `streams`: streams on which a forward runs its steps by turns.
    """

    name: str
    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    seq_len: int
    saved: Bytes = 0.0
    cp: int = 1
    value_dim: int = 0
    window: int = 0
    steps: int = 1
    streams: int = 1

    def causal_length(self, backward: bool) -> float:
        """Tokens of the causal sequence in which a query sees as many keys on average as in one kernel of this core.

        How fast a kernel is depends on the keys that it goes through for each block of queries: half of a causal sequence, and
        all of a window. Steps of a backward run one after the other; those on two streams hide half of their ends (a guess)."""
        together = 1.0 if backward else (1 + self.streams) / 2
        alone = min(self.seq_len, together * self.seq_len / self.steps)
        return min(alone, 2 * self.window or self.seq_len)

    @property
    def scores(self) -> float:
        """Number of attention scores of this rank, the masked half included: twice those that count."""
        seen, s = min(self.window or self.seq_len, self.seq_len), self.seq_len
        return float(self.batch * self.heads) * (s**2 - (s - seen) ** 2) / self.cp

    @property
    def both_dims(self) -> int:
        """Dimension of a query head and of a value head together."""
        return self.head_dim + (self.value_dim or self.head_dim)

    @property
    def flops(self) -> Flops:
        """FLOPs of the scores and the weighted values, without the masked half (causal attention)."""
        return self.scores * self.both_dims


@dataclass(frozen=True, slots=True)
class Pass:
    """An elementwise kernel that reads and writes `moved` bytes of memory; `saved` bytes are kept for the backward pass.

    backward: bytes that its backward moves; None: as many for each byte of the forward as passes of a layer usually do.
    routed: it is the activation function of routed experts. launches: kernels that it stands for, (forward, backward).
    rows: number of short rows over which its backward sums the gradient of a norm's weight; 0: the sum takes no time of its
    own, as for rows of a whole hidden state."""

    name: str
    moved: Bytes
    saved: Bytes = 0.0
    backward: Bytes | None = None
    routed: bool = False
    launches: tuple[int, int] = (1, 1)
    rows: int = 0


Kernel: TypeAlias = Gemm | Attention | Pass

HEAD_NORM = "head norm"
"""Name of the norms of queries and keys."""
ADAPTER_SUM = "adapter sum"
"""Name of the passes that scale the result of an adapter and add it to that of its product (`sim.workload.adapter_kernels`)."""

SCORE_BYTES, COPY_BYTES, ROW_BYTES = 4, 24, 4
"""Bytes that a router keeps for the backward beside its input, read in Megatron-Core d98e8a64 (megatron/core/transformer/moe)
without its fused kernels. For each token and expert: a score in fp32, of a sigmoid or of the auxiliary loss
(topk_routing_with_score_function and compute_routing_scores_for_aux_loss of moe_utils.py). For each copy of a token: three
indices of 8 bytes, of its expert, its row and its probability (the same, and permute). For each row of an expert: the
probability in fp32 by which its activation is multiplied (TEGroupedMLP of experts.py)."""


@dataclass(frozen=True, slots=True)
class LayerSharding:
    """How tensor, sequence, context and expert parallelism divide one layer; `etp` ranks divide each routed expert.

    load: rows of the experts of the busiest rank, over the mean of routed tokens. sent: copies of tokens that a rank sends,
    over those that it routed: padding included, dropped tokens not. fused_dispatch: the exchange itself sorts tokens by
    expert. steps, streams: those of the attention core (`Attention`). whole_latents: each of the `tp` ranks makes the latent
    vectors of all tokens (`_latent`)."""

    tp: int = 1
    sequence_parallel: bool = False
    cp: int = 1
    ep: int = 1
    etp: int = 1
    load: float = 1.0
    sent: float = 1.0
    fused_dispatch: bool = False
    steps: int = 1
    streams: int = 1
    whole_latents: bool = False


def layer_kernels(model: Model, b: int, s: int, sharding: LayerSharding, nbytes: int) -> tuple[Kernel, ...]:
    """Forward kernels of one layer on one rank, for a microbatch of `b` sequences of `s` tokens at `nbytes` bytes a value.

    A rank holds s / cp tokens of each sequence, and multiplies their queries with all keys. It holds 1 / ep of the experts, and
    processes the tokens that `ep` ranks send it, gathered from `etp` ranks. With sequence parallelism a rank routes its own
    slice of the tokens. It copies each token once for each of its experts, and adds up their results: a pass reads or writes
    tokens and copies. Where it holds several experts, it sorts what came for them, and sorts the results back: two passes that
    read and write all copies (Megatron-Core, MoEAlltoAllTokenDispatcher of megatron/core/transformer/moe/token_dispatcher.py).

    The input of the router, which is that of shared experts, is kept, and so are its probabilities (`SCORE_BYTES`) and the rows
    that experts get. Buffers between copying, exchange and sorting are not, since no gradient needs their values.

    Saved bytes add up to arXiv 2205.05198, equation 2, without the attention scores, which a fused attention kernel does not
    keep: s b h (10 + 24/t) at 2 bytes a value, or s b h 34/t with sequence parallelism. Dropout masks take one byte a value.
    Passes are fused as in Megatron-LM: a norm reads and writes once; bias + dropout + residual reads twice, writes once and
    keeps a mask; the activation function reads the up projection and writes its result.
    """
    t, sequence_parallel, cp, ep = sharding.tp, sharding.sequence_parallel, sharding.cp, sharding.ep
    tokens = b * s // cp
    h = model.hidden
    outside = tokens * h // t if sequence_parallel else tokens * h  # values of the region between tensor-parallel blocks
    q, kv = model.query_size // t, max(model.key_value_size // t, model.head_dim + model.v_head_dim)
    routed = max(model.experts_per_token, 1)
    own = tokens // t if sequence_parallel else tokens  # tokens that this rank routes
    gathered = own * (sharding.etp if sequence_parallel or t == 1 else 1)  # tokens of the ranks that divide an expert
    mlp_tokens = round(gathered * routed * sharding.load)  # of the busiest rank, whose experts get equal shares
    local = max(model.experts // ep, 1)
    sorts = 4.0 if local > 1 and not sharding.fused_dispatch else 0.0
    parts = t if sequence_parallel else 1  # ranks that gather an input, and the gradient of a result
    column, row = Casts(parts, 1, True), Casts(1, parts)
    entered = outside * nbytes
    made = (tokens, tokens * h * nbytes) if sharding.whole_latents else (own, entered)  # latent vectors of a rank, bytes kept
    mask = float(outside) if model.mlp == "gelu" else 0.0  # the Llama family trains without dropout
    kernels: list[Kernel] = [
        Pass("norm", 2.0 * entered, saved=entered),
        *(
            _latent(model, tokens, t, *made, nbytes, column)
            if model.attention == "mla"
            else [Gemm("qkv", tokens, q + kv, h, saved=entered, casts=column)]
        ),
        *_head_norms(model, tokens, t, nbytes),
        Pass("heads", 2.0 * tokens * (q + kv) * nbytes),
        Attention(
            "attention",
            b,
            model.heads // t,
            max(model.kv_heads // t, 1),
            model.head_dim,
            s,
            saved=float(tokens * (q + kv) * nbytes),
            cp=cp,
            value_dim=model.v_head_dim,
            window=model.sliding_window,
            steps=sharding.steps,
            streams=sharding.streams,
        ),
        Gemm("projection", tokens, h, model.value_size // t, saved=float(tokens * model.value_size // t * nbytes), casts=row),
        Pass("residual", 3.0 * entered + mask, saved=mask),
        Pass("norm", 2.0 * entered, saved=entered),
    ]
    if model.experts:
        copied = own * routed * sharding.sent
        probabilities = own * model.experts * SCORE_BYTES + copied * COPY_BYTES + mlp_tokens * ROW_BYTES
        kept = 0.0 if model.shared_ffn_hidden else entered
        kernels.append(Gemm("router", own, model.experts, h, saved=kept, casts=None))
        kernels.append(Pass("dispatch", (2.0 * (own + copied) + sorts * mlp_tokens) * h * nbytes, saved=probabilities))
    if model.shared_ffn_hidden:
        kernels += _mlp_kernels(model, tokens, 1, model.shared_ffn_hidden // t, nbytes, entered, (Casts(parts), row))
    if model.experts:
        kept = float(mlp_tokens * h * nbytes)
        kernels += _mlp_kernels(model, mlp_tokens, local, model.ffn_hidden // sharding.etp, nbytes, kept, None)
    else:
        kernels += _mlp_kernels(model, tokens, 1, model.ffn_hidden // t, nbytes, entered, (column, row))
    kernels.append(Pass("residual", 3.0 * entered + mask, saved=mask))
    return tuple(kernels)


def _head_norms(model: Model, tokens: int, t: int, nbytes: int) -> list[Kernel]:
    """The norms of queries and of keys, each over the values of one head: both keep their input, beside what attention keeps.

    Both are kernels of their own before the rotation (Megatron-Core d98e8a64, get_query_key_value_tensors of
    megatron/core/transformer/attention.py; torchtitan and transformers alike). Tensor parallelism divides the heads."""
    if not model.has_head_norms:
        return []
    rows = (tokens * model.heads // t, tokens * max(model.kv_heads // t, 1))
    values = (float(number * model.head_dim * nbytes) for number in rows)
    return [Pass(HEAD_NORM, 2.0 * moved, saved=moved, rows=number) for number, moved in zip(rows, values, strict=True)]


def _latent(model: Model, tokens: int, t: int, own: int, entered: Bytes, nbytes: int, column: Casts) -> list[Kernel]:
    """Products that make queries, keys and values from latent vectors (arXiv 2405.04434, section 2.1).

    Those down to the ranks are not divided by tensor parallelism; a rank makes those of its `own` tokens (Megatron-Core,
    megatron/core/transformer/multi_latent_attention.py), or of all, whose hidden state it gathers before and keeps (torchtitan
    0.3.0, models/deepseek_v3/sharding.py). With q_lora_rank 0 queries come from the hidden state."""
    h, compressed = model.hidden, model.q_lora_rank + model.kv_lora_rank
    down = Gemm("qkv", own, compressed + model.qk_rope_head_dim, h, saved=entered)
    kept = float(tokens * nbytes)
    queries = model.q_lora_rank or h
    return [
        down,
        Pass("latent norm", 2.0 * own * compressed * nbytes, saved=float(own * compressed * nbytes)),
        Gemm("queries", tokens, model.query_size // t, queries, saved=kept * model.q_lora_rank, casts=column),
        Gemm(
            "keys and values", tokens, model.heads * (model.qk_nope_head_dim + model.v_head_dim) // t, model.kv_lora_rank,
            saved=kept * model.kv_lora_rank, casts=column,
        ),
    ]  # fmt: skip


def _mlp_kernels(
    model: Model, tokens: int, experts: int, f: int, nbytes: int, entered: Bytes, casts: tuple[Casts, Casts] | None
) -> list[Kernel]:
    """Kernels of `experts` MLPs of width `f` that divide `tokens` tokens evenly; `entered` bytes of input are kept.

    casts: those of both products; None: it is routed experts, whose input no norm writes and no ranks gather."""
    first, second = casts or (Casts(activation="gradient"), Casts(activation="input"))
    rows, up = max(tokens // experts, 1), f * (2 if model.mlp == "swiglu" else 1)
    return [
        Gemm("up", rows, up, model.hidden, count=experts, saved=entered, casts=first),
        Pass("activation", float(tokens * (up + f) * nbytes), saved=float(tokens * up * nbytes), routed=casts is None),
        Gemm("down", rows, model.hidden, f, count=experts, saved=float(tokens * f * nbytes), casts=second),
    ]
