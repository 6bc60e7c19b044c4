"""Flags of Megatron-LM that change no step time: data, optimizer numbers, checkpoints, logging, and facts of a model."""

from __future__ import annotations

BEGINNINGS = (
    "adam-", "async-save", "check-", "ckpt-", "data-", "decoupled-", "dist-ckpt", "distributed-timeout", "eval-", "exit-",
    "finetune", "init-method", "inspect", "lr", "load", "log-", "logging", "loss-scale", "merge-file", "min-lr",
    "moe-aux-loss", "moe-router-bias", "moe-router-enable", "moe-router-pre",
    "moe-router-score", "moe-router-topk-scaling", "moe-z-loss", "mtp-loss", "no-check", "no-load", "no-save", "no-mmap",
    "num-workers", "override-opt", "per-split", "profile", "reset-", "rerun", "rope-", "rotary-", "save", "seed", "split",
    "start-weight", "end-weight", "tensorboard", "tiktoken", "timing-", "tokenizer", "train-", "use-checkpoint",
    "valid-", "test-data", "wandb", "weight-decay", "manual-gc",
)  # fmt: skip
"""Beginnings of their names."""
NAMES = (
    "add-qkv-bias", "apply-layernorm-1p", "attention-dropout", "auto-detect-ckpt-format", "calculate-per-token-loss",
    "clip-grad", "cross-entropy-loss-fusion", "create-attention-mask-in-dataloader", "dataloader-type",
    "empty-unused-memory-level", "group-query-attention", "hidden-dropout", "initial-loss-scale", "is-hybrid-model",
    "kv-channels", "legacy-tokenizer", "make-vocab-size-divisible-by", "max-position-embeddings", "mock-data",
    "moe-grouped-gemm", "moe-permute-fusion", "moe-router-dtype", "moe-router-force-load-balancing",
    "moe-router-load-balancing-type", "moe-token-drop-policy", "mscale", "mscale-all-dim",
    "no-create-attention-mask-in-dataloader",
    "no-masked-softmax-fusion", "no-position-embedding", "no-rope-fusion", "norm-epsilon", "normalization", "optimizer",
    "position-embedding-type", "qk-layernorm", "transformer-impl", "use-flash-attn", "use-mcore-models",
    "use-rope-scaling", "use-rotary-position-embeddings", "vocab-file", "vocab-size", "yarn", "fp8-amax-compute-algo",
    "fp8-amax-history-len", "fp8-margin", "fp8-interval", "attention-softmax-in-fp32", "disable-bias-linear",
    "cross-entropy-fusion-impl", "enable-experimental", "distributed-backend", "enable-one-logger",
    "beta-fast", "beta-slow",
)  # fmt: skip


def is_harmless(flag: str) -> bool:
    """Whether a flag changes no step time."""
    return flag in NAMES or flag.startswith(BEGINNINGS)
