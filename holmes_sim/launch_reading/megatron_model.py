"""The model of Megatron-LM's flags. Defaults are those of megatron/training/arguments.py at NVIDIA/Megatron-LM d98e8a64."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from holmes_sim.launch_reading.flags import Flags
from sim.errors import HolmesError
from sim.formats import catalog
from sim.units import GIGA
from sim.workload.launch_facts import LaunchFacts
from sim.workload.model import Model

VOCABULARIES = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}
"""Tokenizers whose size follows from their type (GPT-2's vocab.json; Llama 2's tokenizer.model)."""
DIVISOR = 128
"""Default of --make-vocab-size-divisible-by; vocabularies are padded to a multiple of it times tp."""
SHAPE = {
    "num-layers", "hidden-size", "num-attention-heads", "swiglu", "squared-relu", "ffn-hidden-size", "num-query-groups",
    "untie-embeddings-and-output-weights", "mtp-num-layers", "padded-vocab-size", "moe-router-topk", "moe-ffn-hidden-size",
    "moe-shared-expert-intermediate-size", "moe-layer-freq", "multi-latent-attention", "q-lora-rank", "kv-lora-rank",
    "qk-head-dim", "qk-pos-emb-head-dim", "v-head-dim", "window-size", "window-attn-skip-freq", "softmax-type",
    "moe-router-num-groups", "moe-router-group-topk",
}  # fmt: skip
"""Flags that a model which the user gives replaces."""
PART = re.compile(r"\(?\[([01](?:,[01])*)\]\)?(?:\*(\d+))?")
"""A part of --moe-layer-freq, such as [0]*3."""


def model_of(flags: Flags, tp: int) -> tuple[Model, tuple[str, ...]]:
    """The model, and what of it is assumed. Raises HolmesError."""
    layers, hidden, heads = (flags.number(name) for name in ("num-layers", "hidden-size", "num-attention-heads"))
    mlp = "swiglu" if flags.has("swiglu") else "relu2" if flags.has("squared-relu") else "gelu"
    usual = 4 * hidden if mlp != "swiglu" else int(4 * hidden * 2 / 3) // 64 * 64
    ffn = flags.number("ffn-hidden-size", usual)
    grouped = flags.has("group-query-attention")
    shape: dict[str, Any] = {
        "layers": layers, "hidden": hidden, "heads": heads, "ffn_hidden": ffn, "mlp": mlp,
        "kv_heads": flags.number("num-query-groups", 1) if grouped else heads,
        "head_dim": flags.number("kv-channels", 0) if "kv-channels" in flags.values else 0,
        "tied_embeddings": not flags.has("untie-embeddings-and-output-weights"),
        "mtp_layers": flags.number("mtp-num-layers", 0, least=0),
    }  # fmt: skip
    rotary = flags.word("position-embedding-type") not in ("", "learned_absolute")
    if not rotary and not flags.has("use-rotary-position-embeddings"):
        shape["learned_positions"] = flags.number("max-position-embeddings")
    shape |= _experts(flags, ffn) | _attention(flags)
    vocab, assumed = _vocabulary(flags, shape, tp)
    try:
        model = Model(name="of the launch", vocab=vocab, launch=_facts(flags), **shape)
    except ValueError as error:
        raise HolmesError(f"{flags.name}: the flags of the model contradict each other: {error}") from None
    return replace(model, name=_name(model)), assumed


def _experts(flags: Flags, ffn: int) -> dict[str, Any]:
    if not flags.has("num-experts"):
        return {}
    found: dict[str, Any] = {
        "experts": flags.number("num-experts"),
        "experts_per_token": flags.number("moe-router-topk", 2),
        "ffn_hidden": flags.number("moe-ffn-hidden-size", ffn),
        "shared_ffn_hidden": flags.number("moe-shared-expert-intermediate-size", 0),
    }
    groups, chosen = flags.number("moe-router-num-groups", 1), flags.number("moe-router-group-topk", 0)
    found |= {"n_group": groups, "topk_group": chosen} if chosen else {}
    pattern = flags.word("moe-layer-freq", "1")
    if pattern.isdigit():
        step = int(pattern)
        return found | ({"moe_layer_step": step, "dense_ffn_hidden": ffn} if step > 1 else {})
    parts = [part for part in re.split(r"\+", pattern.strip("()\"'")) if part]
    matches = [PART.fullmatch(part) for part in parts]
    if not all(matches):
        raise flags.fault("moe-layer-freq", f"{pattern}: a number, or a list such as [0]*3+[1]*58, is expected here")
    ones = [one for m in matches if m for one in m[1].split(",") * int(m[2] or 1)]
    dense = ones.index("1") if "1" in ones else len(ones)
    if "0" in ones[dense:]:
        raise flags.fault("moe-layer-freq", f"{pattern}: dense layers after one with experts are not modelled")
    return found | ({"dense_layers": dense, "dense_ffn_hidden": ffn} if dense else {})


def _attention(flags: Flags) -> dict[str, Any]:
    """Latent attention, sinks (a softmax off by one has a fixed logit in their place) and windows."""
    found: dict[str, Any] = {}
    if flags.has("multi-latent-attention"):
        found = {
            "attention": "mla", "head_dim": 0, "q_lora_rank": flags.number("q-lora-rank", 0),
            "kv_lora_rank": flags.number("kv-lora-rank", 32), "qk_nope_head_dim": flags.number("qk-head-dim", 128),
            "qk_rope_head_dim": flags.number("qk-pos-emb-head-dim", 64), "v_head_dim": flags.number("v-head-dim", 128),
        }  # fmt: skip
    if (softmax := flags.word("softmax-type", "vanilla")) not in ("vanilla", "off-by-one", "learnable"):
        raise flags.fault("softmax-type", f"{softmax}: vanilla, off-by-one or learnable is expected here")
    if softmax == "learnable":
        found["attention_sinks"] = True
    if flags.has("window-size"):
        left = re.match(r"\(?(\d+)", " ".join(flags.words("window-size")))
        if left is None:
            raise flags.fault("window-size", "two numbers such as 127,0 are expected here")
        found["sliding_window"] = int(left[1]) + 1
        skip = flags.word("window-attn-skip-freq")
        if skip and (not skip.isdecimal() or int(skip) < 2):
            raise flags.fault("window-attn-skip-freq", f"{skip}: a number from 2 on is expected; lists are not modelled")
        found["full_attention_every"] = int(skip or 0)
    return found


def _vocabulary(flags: Flags, shape: dict[str, Any], tp: int) -> tuple[int, tuple[str, ...]]:
    """The padded vocabulary, and what of it is assumed."""
    if flags.has("padded-vocab-size"):
        return flags.number("padded-vocab-size"), ()
    kind = flags.word("tokenizer-type") or ("GPT2BPETokenizer" if flags.has("merge-file") else "")
    block = flags.number("make-vocab-size-divisible-by", DIVISOR) * tp
    if flags.has("vocab-size"):
        size = flags.number("vocab-size") + (kind == "NullTokenizer")
        return -(-size // block) * block, ()
    if kind in VOCABULARIES:
        return -(-VOCABULARIES[kind] // block) * block, (f"vocabulary of {VOCABULARIES[kind]} tokens: that of {kind}",)
    for name in catalog.names("models"):
        known = catalog.model(name)
        if all(getattr(known, key) == shape.get(key) for key in ("layers", "hidden", "heads", "kv_heads")):
            return -(-known.vocab // block) * block, (f"vocabulary of {known.vocab} tokens: that of {name}, with these layers",)
    raise HolmesError(f"{flags.name}: the launch does not say the vocabulary; give --vocab-size there, or the model by --model")


def _facts(flags: Flags) -> LaunchFacts:
    return LaunchFacts(rope_theta=float(flags.number("rotary-base")) if flags.has("rotary-base") else None)


def _name(model: Model) -> str:
    """The name of a model of the catalogue with the same layers; else of its size."""
    keys = ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "mlp", "experts", "experts_per_token", "attention")
    for name in catalog.names("models"):
        if all(getattr(catalog.model(name), key) == getattr(model, key) for key in keys):
            return name
    return f"launch-{model.parameters / GIGA:.3g}b"
