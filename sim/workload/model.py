"""The shape of a transformer language model and its parameter counts.

A model is `layers` transformer layers between an embedding and a language-model head. Layers are alike, or of a few kinds: with
experts or a dense MLP, with full or windowed attention (`Model.kinds`). `sim.workload.kernels` lists the kernels of a layer.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field, replace

from sim.workload import expert_groups
from sim.workload.launch_facts import LaunchFacts

PRECISION_BYTES: dict[str, int] = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "mxfp8": 2, "nvfp4": 2}
"""Precision -> stored bytes of one activation or weight. Training in fp8 or less keeps both in bf16 and casts them for the
GEMM."""
NARROW = ("fp8", "mxfp8", "nvfp4")
"""Precisions of the products of layers alone; attention, logits and all tensors between products are bf16. fp8 has a scale for
each tensor, mxfp8 for each 32 values, nvfp4 for each 16 (Transformer Engine: DelayedScaling, MXFP8BlockScaling,
NVFP4BlockScaling)."""

ATTENTION_KINDS = ("standard", "mla")
"""Kinds of attention: heads of queries, keys and values from one product, or multi-head latent attention (DeepSeek-V2, arXiv
2405.04434, section 2.1): queries, and keys with values, from two low-rank products each."""
SPECIAL = (
    "dense_layers", "dense_ffn_hidden", "moe_layer_step", "attention", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
    "qk_rope_head_dim", "v_head_dim", "mtp_layers", "sliding_window", "sliding_window_every", "full_attention_every",
    "n_group", "topk_group", "attention_sinks",
)  # fmt: skip
"""Keys that most models do not need."""
MLP_KINDS = ("gelu", "swiglu", "relu2")
"""Kinds of MLP: two matrices with biases (GPT), three matrices (gated, Llama), two matrices without biases."""


@dataclass(frozen=True, slots=True)
class Model:
    """A transformer language model.

    `vocab` is the padded vocabulary size. `experts` is 0 for a dense MLP; else `ffn_hidden` is the width of one routed expert,
    and `shared_ffn_hidden` the total width of the shared experts, which process every token. A token chooses its experts from
    `topk_group` of `n_group` equal groups of consecutive experts (arXiv 2412.19437, section 2.1.2); 1 and 1: from all.

    Layers that differ, in the words of Hugging Face's configurations: the first `dense_layers` have a dense MLP of width
    `dense_ffn_hidden`, and of the others every `moe_layer_step`-th has experts; every `sliding_window_every`-th layer, from
    the first one, attends to the last `sliding_window` tokens only, except every `full_attention_every`-th (0: none).
    `mtp_layers` layers after the last one predict further tokens (arXiv 2412.19437, section 2.2): each has a product of two
    hidden states, a layer like the last one and a head.
    `attention_sinks`: each head has a learned logit beside its scores (gpt-oss, arXiv 2508.10925, section 2): a parameter.

    `launch` holds the facts that a launch needs; of these the step time depends on `qk_norm` alone (`has_head_norms`). Raises
    ValueError for wrong values.
    With `attention` mla, `head_dim` is `qk_nope_head_dim` + `qk_rope_head_dim`; `q_lora_rank` 0 makes queries from one product.
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
    dense_layers: int = 0
    dense_ffn_hidden: int = 0
    moe_layer_step: int = 1
    attention: str = ATTENTION_KINDS[0]
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    mtp_layers: int = 0
    sliding_window: int = 0
    sliding_window_every: int = 1
    full_attention_every: int = 0
    n_group: int = 1
    topk_group: int = 1
    attention_sinks: bool = False
    launch: LaunchFacts = field(default=LaunchFacts(), hash=False)

    def __post_init__(self) -> None:
        _check_attention(self)
        _check_kinds(self)
        if self.head_dim == 0:
            object.__setattr__(self, "head_dim", self.hidden // self.heads if self.heads > 0 else 0)
        for key in ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "head_dim"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, not {getattr(self, key)}")
        if self.v_head_dim == 0:
            object.__setattr__(self, "v_head_dim", self.head_dim)
        if self.mlp not in MLP_KINDS:
            raise ValueError(f"mlp {self.mlp!r} is unknown; known: {', '.join(MLP_KINDS)}")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads {self.kv_heads} does not divide heads {self.heads}")
        if bool(self.experts) != bool(self.experts_per_token) or self.experts_per_token > self.experts:
            raise ValueError(f"experts_per_token must be between 1 and experts {self.experts}, not {self.experts_per_token}")
        if self.shared_ffn_hidden < 0 or (self.shared_ffn_hidden and not self.experts):
            raise ValueError(
                f"shared_ffn_hidden {self.shared_ffn_hidden} is the width of shared experts, but the model has no experts"
            )
        groups = expert_groups.checked(self.n_group, self.topk_group, self.experts, self.experts_per_token)
        object.__setattr__(self, "n_group", groups[0])
        object.__setattr__(self, "topk_group", groups[1])

    @property
    def query_size(self) -> int:
        """Total width of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Total width of all key heads."""
        return self.kv_heads * self.head_dim

    @property
    def value_size(self) -> int:
        """Total width of what the query heads give: `heads` values."""
        return self.heads * self.v_head_dim

    @property
    def key_value_size(self) -> int:
        """Total width of all key and value heads."""
        return self.kv_heads * (self.head_dim + self.v_head_dim)

    @property
    def is_uniform(self) -> bool:
        """Whether all layers are alike, and none follows the last one."""
        windows = self.sliding_window and (self.sliding_window_every > 1 or self.full_attention_every)
        return not (self.dense_layers or self.moe_layer_step > 1 or windows or self.mtp_layers)

    @property
    def has_head_norms(self) -> bool:
        """Whether queries and keys have norms over the values of each head: not if that is not known. With latent attention
        `launch.qk_norm` says that the latent vectors have norms, which are counted whatever it says."""
        return self.attention == "standard" and self.launch.qk_norm is True

    @property
    def special(self) -> dict[str, int | str]:
        """Key -> value of what the model has beyond equal layers with standard attention (`SPECIAL`)."""
        found = {key: getattr(self, key) for key in SPECIAL}
        usual = {"attention": ATTENTION_KINDS[0], "v_head_dim": self.head_dim}
        usual |= dict.fromkeys(("moe_layer_step", "sliding_window_every", "n_group", "topk_group"), 1)
        return {key: value for key, value in found.items() if value != usual.get(key, 0)}

    def has_window(self, layer: int) -> bool:
        """Whether a layer, counted from 0, attends to the last `sliding_window` tokens only."""
        is_full = self.full_attention_every > 0 and (layer + 1) % self.full_attention_every == 0
        return self.sliding_window > 0 and layer % self.sliding_window_every == 0 and not is_full

    def kinds(self, first: int, past: int) -> tuple[tuple[int, Model], ...]:
        """(number, model of such layers alone) of each kind of layer among those from `first` up to, not including, `past`."""
        return _kinds(self, first, past)

    @property
    def attention_parameters(self) -> int:
        """Parameters of the matrices of attention of one layer."""
        output = self.value_size * self.hidden
        if self.attention == "mla":
            down = self.hidden * (self.q_lora_rank + self.kv_lora_rank + self.qk_rope_head_dim)
            queries = self.query_size * (self.q_lora_rank or self.hidden)
            return down + queries + self.kv_lora_rank * self.heads * (self.qk_nope_head_dim + self.v_head_dim) + output
        return self.hidden * (self.query_size + self.key_value_size) + output

    @property
    def up_width(self) -> int:
        """Columns of the first MLP product; in a gated MLP those of gate and up projection together."""
        return self.ffn_hidden * (2 if self.mlp == "swiglu" else 1)

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: attention and MLP matrices, biases of the GELU family, norms, router, sinks."""
        attention = self.attention_parameters + (self.heads if self.attention_sinks else 0)
        norms = 2 * self.hidden + (self.q_lora_rank + self.kv_lora_rank if self.attention == "mla" else 0)
        norms += 2 * self.head_dim if self.has_head_norms else 0
        if self.mlp == "gelu":  # GPT style: biases on every product, norms with a shift
            attention += self.query_size + self.key_value_size + self.hidden
            norms *= 2
        if self.experts:
            shared = self._mlp_parameters(self.shared_ffn_hidden) if self.shared_ffn_hidden else 0
            return attention + self.expert_parameters + shared + self.hidden * self.experts + norms
        return attention + self._mlp_parameters(self.ffn_hidden) + norms

    @property
    def linear_parameters(self) -> int:
        """Parameters of the linear layers of one layer: attention and MLP matrices, without biases, norms and router."""
        dense = self.shared_ffn_hidden if self.experts else self.ffn_hidden
        return self.attention_parameters + self._mlp_matrices(dense) + self.expert_linear_parameters

    @property
    def expert_linear_parameters(self) -> int:
        """Parameters of the matrices of all routed experts of one layer, without biases."""
        return self.experts * self._mlp_matrices(self.ffn_hidden)

    @property
    def expert_parameters(self) -> int:
        """Parameters of all routed experts of one layer, which expert parallelism divides."""
        return self.experts * self._mlp_parameters(self.ffn_hidden)

    def layer_parameters_on(self, tp: int, ep: int = 1, etp: int = 0) -> float:
        """Parameters of one layer on one rank: `ep` x `etp` ranks divide the routed experts (etp 0: as tp), `tp` the rest."""
        return (self.layer_parameters - self.expert_parameters) / tp + self.expert_parameters / ep / (etp or tp)

    def _mlp_parameters(self, width: int) -> int:
        return self._mlp_matrices(width) + (width + self.hidden if self.mlp == "gelu" else 0)

    def _mlp_matrices(self, width: int) -> int:
        return (3 if self.mlp == "swiglu" else 2) * self.hidden * width

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the input embedding (words and learned positions)."""
        return (self.vocab + self.learned_positions) * self.hidden

    @property
    def head_parameters(self) -> int:
        """Parameters of final norm and output projection; the last stage stores them even if tied to the embedding. Layers that
        predict further tokens add the product of two hidden states and three norms each, and use the same output projection."""
        further = self.mtp_layers * (2 * self.hidden + 3) * self.hidden
        return self.vocab * self.hidden + self.hidden * (2 if self.mlp == "gelu" else 1) + further

    @property
    def parameters(self) -> int:
        """Parameters of the whole model; tied ones count once."""
        tied = self.vocab * self.hidden if self.tied_embeddings else 0
        layers = sum(number * kind.layer_parameters for number, kind in self.kinds(0, self.layers))
        return layers + self.embedding_parameters + self.head_parameters - tied


def _check_attention(model: Model) -> None:
    """Check the keys of latent attention, and set the dimension of its heads."""
    ranks = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    if model.attention not in ATTENTION_KINDS:
        raise ValueError(f"attention {model.attention!r} is unknown; known: {', '.join(ATTENTION_KINDS)}")
    if model.attention == "standard":
        for key in ("q_lora_rank", *ranks[:3]):
            if getattr(model, key):
                raise ValueError(f"{key} {getattr(model, key)} needs attention mla")
        return
    for key in ranks:
        if getattr(model, key) < 1:
            raise ValueError(f"{key} must be at least 1 with attention mla, not {getattr(model, key)}")
    if model.kv_heads != model.heads:
        raise ValueError(f"kv_heads {model.kv_heads} must be heads {model.heads} with attention mla; leave it out")
    object.__setattr__(model, "head_dim", model.qk_nope_head_dim + model.qk_rope_head_dim)


def _check_kinds(model: Model) -> None:
    """Check the keys of layers that differ."""
    for key in ("dense_layers", "dense_ffn_hidden", "mtp_layers", "sliding_window"):
        if getattr(model, key) < 0:
            raise ValueError(f"{key} must be at least 0, not {getattr(model, key)}")
    if min(model.moe_layer_step, model.sliding_window_every) < 1:
        raise ValueError("moe_layer_step and sliding_window_every must be at least 1")
    if model.full_attention_every and (model.full_attention_every < 2 or not model.sliding_window):
        raise ValueError(f"full_attention_every {model.full_attention_every} must be 0, or at least 2 with a sliding_window")
    dense = model.dense_layers or model.moe_layer_step > 1
    if dense and (not model.experts or not model.dense_ffn_hidden):
        raise ValueError("dense_layers and moe_layer_step need experts, and dense_ffn_hidden, the width of the dense MLPs")
    if model.dense_layers >= model.layers > 0 and model.dense_layers:
        raise ValueError(f"dense_layers {model.dense_layers} leaves none of {model.layers} layers with experts")


@functools.lru_cache(maxsize=4096)
def _kinds(model: Model, first: int, past: int) -> tuple[tuple[int, Model], ...]:
    if model.is_uniform:
        return ((past - first, model),)
    found = Counter(
        (index < model.dense_layers or (index + 1) % model.moe_layer_step != 0, model.has_window(index))
        for index in range(first, past)
    )
    return tuple((number, _of_kind(model, *kind)) for kind, number in found.items())


@functools.lru_cache(maxsize=256)
def _of_kind(model: Model, dense: bool, windowed: bool) -> Model:
    """The model whose layers are all of one kind."""
    found = replace(
        model, dense_layers=0, dense_ffn_hidden=0, moe_layer_step=1, mtp_layers=0, sliding_window_every=1,
        full_attention_every=0, sliding_window=model.sliding_window if windowed else 0,
    )  # fmt: skip
    if not dense:
        return found
    return replace(
        found, experts=0, experts_per_token=0, shared_ffn_hidden=0, ffn_hidden=model.dense_ffn_hidden, n_group=1, topk_group=1
    )
