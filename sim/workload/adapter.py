"""LoRA: adapters of low rank that are trained beside frozen base weights, which may be stored in 4 bits (QLoRA).

A linear layer y = W x becomes y = W x + s B (A x). A (r x inputs) and B (outputs x r) are trained, W is not (Hu et al., arXiv
2106.09685, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sim.units import Bytes
from sim.workload.model import NARROW, Model

PRODUCTS = {
    "q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "o_proj": "projection", "gate_proj": "up", "up_proj": "up",
    "down_proj": "down",
}  # fmt: skip
"""Linear layer, in the words of Hugging Face's Llama -> the product of `sim.workload.kernels` that it is part of."""
ROW_PARALLEL = ("projection", "down")
"""Products whose inputs tensor parallelism divides; it divides the outputs of the others."""
ALL_LINEAR = "all-linear"
"""In place of a list: all linear layers of each transformer layer, not the head (PEFT's `target_modules`)."""
BASE_BYTES: dict[str, Bytes] = {"nf4": (4 + 8 / 64 + 32 / (64 * 256)) / 8}
"""Precision of stored base weights -> bytes of a parameter. nf4: NormalFloat of 4 bits in blocks of 64 with an 8-bit scale, and
an fp32 scale for 256 of those (double quantisation): 4.127 bits (Dettmers et al., arXiv 2305.14314, section 3)."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """Adapters of rank `r` on the linear layers `target_modules` of every transformer layer; all other weights are frozen.

    base_precision: a key of `BASE_BYTES` for the base weights of all linear layers of transformer layers; empty: they are
    stored like activations. Embedding, norms and head always are. Raises ValueError for wrong values."""

    r: int
    target_modules: tuple[str, ...] = tuple(PRODUCTS)
    base_precision: str = ""

    def __post_init__(self) -> None:
        if self.r < 1:
            raise ValueError(f"adapter.r must be at least 1, not {self.r}")
        if not self.target_modules:
            raise ValueError(f"adapter.target_modules is empty; write {ALL_LINEAR}, or some of {', '.join(PRODUCTS)}")
        for name in self.target_modules:
            if name not in PRODUCTS:
                raise ValueError(f"adapter.target_modules {name!r} is unknown; known: {ALL_LINEAR}, {', '.join(PRODUCTS)}")
        if len(set(self.target_modules)) < len(self.target_modules):
            raise ValueError(f"adapter.target_modules {', '.join(self.target_modules)} names a module twice")
        object.__setattr__(self, "target_modules", tuple(name for name in PRODUCTS if name in self.target_modules))
        if self.base_precision and self.base_precision not in BASE_BYTES:
            raise ValueError(
                f"adapter.base_precision {self.base_precision!r} is unknown; known: {', '.join(BASE_BYTES)}, or leave it out"
            )

    def check(self, model: Model, precision: str) -> None:
        """Raise ValueError where adapters of this model are not modelled: experts, latent attention, narrow products."""
        if model.experts:
            raise ValueError(f"adapter: model {model.name} has experts; adapters of models without experts are modelled")
        if model.attention != "standard" or model.mtp_layers:
            raise ValueError(f"adapter: model {model.name} has mla or mtp_layers; adapters of other models are modelled")
        if precision in NARROW:
            raise ValueError(f"adapter with precision {precision} is not modelled; bf16, fp16, tf32 or fp32")
        if "gate_proj" in self.target_modules and self.target_modules != tuple(PRODUCTS) and model.mlp != "swiglu":
            raise ValueError(f"adapter.target_modules gate_proj: model {model.name} has an MLP without a gate; up_proj")

    def modules(self, model: Model) -> Iterator[tuple[str, str, int, int]]:
        """(module, its product, inputs, outputs) of every linear layer of a transformer layer that has an adapter."""
        attention, mlp = model.query_size, model.ffn_hidden
        sizes = {
            "q_proj": (model.hidden, attention),
            "k_proj": (model.hidden, model.kv_size),
            "v_proj": (model.hidden, model.kv_heads * model.v_head_dim),
            "o_proj": (model.value_size, model.hidden),
            "up_proj": (model.hidden, mlp),
            "down_proj": (mlp, model.hidden),
        }
        if model.mlp == "swiglu":
            sizes["gate_proj"] = sizes["up_proj"]
        for name in PRODUCTS:
            if name in self.target_modules and name in sizes:
                yield name, PRODUCTS[name], *sizes[name]

    def layer_parameters(self, model: Model, tp: int = 1) -> float:
        """Trained parameters of one transformer layer on one of `tp` tensor-parallel ranks.

        They divide B's outputs of a column-parallel layer and A's inputs of a row-parallel one. Each has all of the other
        matrix, so that the sums among them are those of the base (torchtitan 0.3.0, components/lora.py)."""
        total = 0.0
        for _, product, inputs, outputs in self.modules(model):
            row = product in ROW_PARALLEL
            total += self.r * (inputs / tp + outputs if row else inputs + outputs / tp)
        return total

    def base_bytes(self, bytes_per_value: int) -> Bytes:
        """Bytes of a stored base weight of a linear layer."""
        return BASE_BYTES.get(self.base_precision, float(bytes_per_value))
