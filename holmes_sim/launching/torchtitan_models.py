"""Models of torchtitan 0.3.0 that take the shape of a plan: llama3, and qwen3 with normalised queries and keys, or experts.

Read in torchtitan 0.3.0 (models/llama3, models/qwen3, models/common/moe.py, moe_sharding.py, token_dispatcher.py,
distributed/parallel_dims.py, trainer.py):

- llama3 takes hidden / heads as head_dim; qwen3 takes any. Norms of qwen3 have 1e-6. Neither has biases of queries, keys and
  values.
- Experts of qwen3 are chosen by softmax, and the weights of the chosen ones add up to 1. No expert is shared, none drops
  tokens, and all layers are alike.
- The ranks of an ep group are consecutive ones of dp_shard x cp x tp, each with whole experts (etp 1). With ep 1 tensor
  parallelism divides experts (etp is tp). Tokens travel by all_to_all; CUDA graphs do not take it.
- Private names of both packages are used; tests/peers/torchtitan.py checks them against the release.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holmes_sim.launching import torchtitan_options
from holmes_sim.launching.model_facts import Options
from sim.plan.parallel_config import ParallelConfig
from sim.workload.model import Model
from sim.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Family:
    """A model of torchtitan: its package, its config class, the function whose settings a plan starts from, how it takes facts
    of a model, and the text of a shape."""

    name: str
    config: str
    base: str
    options: Options
    imports: str
    shape: str


LLAMA3 = Family(
    "llama3",
    "Llama3Model",
    "llama3_8b",
    torchtitan_options.LLAMA3,
    "ComplexRoPE, Embedding, Linear, RMSNorm",
    """\
        tok_embeddings=Embedding.Config(num_embeddings=vocab, embedding_dim=dim, param_init=llama3.{embedding}),
        norm=RMSNorm.Config(normalized_shape=dim, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(in_features=dim, out_features=vocab, param_init=llama3._output_linear_init(dim)),
        layers=llama3._build_llama3_layers(
            n_layers={layers},
            dim=dim,
            n_heads={heads},
            n_kv_heads={kv_heads},
            hidden_dim={ffn_hidden},
            rope=ComplexRoPE.Config(dim={head_dim}, max_seq_len=131072, {rope}),
            attn_backend="flex",{fused}
        ),
""",
)
_QWEN3 = """\
        tok_embeddings=Embedding.Config(num_embeddings=vocab, embedding_dim=dim, param_init=qwen3.{embedding}),
        norm=qwen3._qwen3_norm(dim),
        lm_head=Linear.Config(in_features=dim, out_features=vocab, param_init=qwen3._LINEAR_INIT),
        layers=qwen3.%s(
            n_layers={layers},
            dim=dim,
            n_heads={heads},
            n_kv_heads={kv_heads},
            head_dim={head_dim},
            %s
            rope=CosSinRoPE.Config(dim={head_dim}, max_seq_len=131072, {rope}),
            attn_backend="flex",{fused}
        ),
"""
QWEN3 = Family(
    "qwen3",
    "Qwen3Model",
    "qwen3_32b",
    torchtitan_options.QWEN3,
    "CosSinRoPE, Embedding, Linear",
    _QWEN3 % ("_build_qwen3_layers", "hidden_dim={ffn_hidden},"),
)
QWEN3_EXPERTS = Family(
    "qwen3",
    "Qwen3Model",
    "qwen3_30b_a3b",
    torchtitan_options.QWEN3,
    "CosSinRoPE, Embedding, Linear",
    _QWEN3
    % (
        "_build_qwen3_moe_layers",
        'moe_hidden_dim={ffn_hidden}, num_experts={experts}, top_k={top_k}, moe_comm_backend="standard",',
    ),
)
UNFUSED = """
            fuse_qkv=False,  # so that queries, keys and values have adapters of their own"""
WITHOUT_NORMS = """
    for layer in shape.layers:
        layer.attention.qk_norm = None"""
"""Queries and keys of qwen3 as they are."""


def family(model: Model) -> Family:
    """The model of torchtitan that has the layers of a model."""
    if model.experts:
        return QWEN3_EXPERTS
    return QWEN3 if model.launch.qk_norm or model.head_dim * model.heads != model.hidden else LLAMA3


def unsupported(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Shapes, and degrees of experts, that neither llama3 nor qwen3 takes."""
    model = workload.model
    if model.mlp != "swiglu":
        yield f"mlp {model.mlp}: its models for text are gated; swiglu"
    if model.learned_positions:
        yield f"learned_positions {model.learned_positions}: its models have rotary positions only; 0"
    if model.tied_embeddings and config.pp > 1:
        yield f"tied_embeddings with pp {config.pp}: it does not tie weights across stages; pp 1"
    if model.experts:
        yield from _unsupported_experts(config, workload)


def _unsupported_experts(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    model = workload.model
    if model.shared_ffn_hidden:
        yield f"shared_ffn_hidden {model.shared_ffn_hidden}: qwen3 has no shared experts; 0"
    if workload.precision in ("fp8", "mxfp8"):
        yield f"precision {workload.precision} with experts: their grouped products were not tried so; bf16"
    if workload.adapter is not None:
        yield "adapter with experts: LoRA on qwen3's experts was not tried; a dense model"
    if config.dispatcher != "alltoall":
        yield f"dispatcher {config.dispatcher}: its other ways to send tokens were not tried; alltoall"
    if config.capacity_factor is not None:
        yield f"capacity_factor {config.capacity_factor:g}: experts take all their tokens; none"
    if config.overlap_expert_communication:
        yield "overlap_expert_communication: tokens travel between computations; a stack without it"
    whole = 1 if config.ep > 1 else config.tp
    if config.expert_tp != whole:
        yield f"etp {config.expert_tp} with ep {config.ep}: ranks of an ep group hold whole experts, others 1/tp; etp {whole}"
    ranks = (config.shards if config.zero_stage else config.cp) * config.tp
    if ranks % config.ep:
        yield f"ep {config.ep}: it divides the {ranks} ranks of a shard group and tp; a divisor of {ranks}"


def text(workload: Workload, rope: str) -> tuple[str, str]:
    """The keyword arguments of a shape as Python text, and statements after it (which begin with a line break)."""
    model, own = workload.model, family(workload.model)
    shape = own.shape.format(
        layers=model.layers, heads=model.heads, kv_heads=model.kv_heads, head_dim=model.head_dim, ffn_hidden=model.ffn_hidden,
        experts=model.experts, top_k=model.experts_per_token, rope=rope,
        embedding="_EMBEDDING_SKIP_INIT" if model.tied_embeddings else "_EMBEDDING_INIT",
        fused=UNFUSED if workload.adapter else "",
    )  # fmt: skip
    return shape, WITHOUT_NORMS if own.name == "qwen3" and model.launch.qk_norm is False else ""
