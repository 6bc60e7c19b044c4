"""Layers that differ, latent attention, windows, and layers that predict further tokens: Megatron-LM's flags for them.

Flags are those of megatron/training/arguments.py and megatron/core/transformer/transformer_config.py, read at
NVIDIA/Megatron-LM d98e8a64. Other exports do not write these keys of a model."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from sim.workload.model import Model
from sim.workload.workload import Workload


def other_optimizer(workload: Workload) -> Iterator[str]:
    """Faults of exports that do not write another optimizer than Adam with fp32 moments."""
    if workload.optimizer != "adam":
        yield f"optimizer {workload.optimizer}: the export does not set it; adam"


def special(workload: Workload) -> Iterator[str]:
    """Faults of exports that write neither such keys of a model nor another optimizer than Adam with fp32 moments."""
    yield from other_optimizer(workload)
    if found := workload.model.special:
        words = ", ".join(f"{key} {value}" for key, value in found.items())
        yield f"model {workload.model.name}: the export does not write {words}; a model of equal layers without them"


def flags(model: Model) -> dict[str, str | int | float | bool]:
    """Megatron-LM's flags for what a model has beyond equal layers with standard attention, in place of the usual ones.
    Its learnable softmax has a logit for each head beside the scores (megatron/core/transformer/dot_product_attention.py).

    A layer with a window has full attention where --window-attn-skip-freq is 0 in a list, or divides its number (from 1)."""
    found: dict[str, str | int | float | bool] = {}
    if model.attention == "mla":
        found |= {"multi-latent-attention": True, "kv-lora-rank": model.kv_lora_rank, "qk-head-dim": model.qk_nope_head_dim}
        found |= {"qk-pos-emb-head-dim": model.qk_rope_head_dim, "v-head-dim": model.v_head_dim}
        if model.q_lora_rank:
            found["q-lora-rank"] = model.q_lora_rank
    if model.dense_ffn_hidden:
        routed = (int(model.kinds(at, at + 1)[0][1].experts > 0) for at in range(model.layers))
        found |= {"ffn-hidden-size": model.dense_ffn_hidden, "moe-layer-freq": _pattern(routed)}
    if model.n_group > 1:
        found |= {"moe-router-num-groups": model.n_group, "moe-router-group-topk": model.topk_group}
    if model.mtp_layers:
        found["mtp-num-layers"] = model.mtp_layers
    if model.attention_sinks:
        found["softmax-type"] = "learnable"
    if model.sliding_window:
        found["window-size"] = f"{model.sliding_window - 1},0"
        if not all(model.has_window(at) for at in range(model.layers)):
            found["window-attn-skip-freq"] = _pattern(int(model.has_window(at)) for at in range(model.layers))
    return found


def _pattern(ones: Iterable[int]) -> str:
    """A list of 0 and 1 as Megatron-LM reads it, runs of equal numbers together: ([0]*3+[1]*58)."""
    return f"({'+'.join(f'[{one}]*{len(list(run))}' for one, run in itertools.groupby(ones))})"
