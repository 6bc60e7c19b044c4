"""The models that PrimeIntellect-ai/prime has by name, and what it says of them (d57965b0, src/zeroband/models/llama)."""

from __future__ import annotations

from typing import NamedTuple

from holmes_sim.launching.model_facts import Option, Options
from sim.workload.model import Model

VOCAB = {"llama2": 32000, "llama3": 128256}
"""type_model -> entries of its tokenizer, for which the model is built (train.py: Mistral-7B-v0.1 and Meta-Llama-3-8B)."""
THETA = {"llama2": 10000, "llama3": 500000}


class Shape(NamedTuple):
    """A model: type_model, name_model, and the shape that models/llama/model.py makes of its ModelArgs."""

    kind: str
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn_hidden: int


SHAPES = (
    Shape("llama2", "70M", 6, 512, 8, 8, 1536),
    Shape("llama2", "150M", 12, 1024, 16, 16, 2816),
    Shape("llama2", "271M", 16, 1024, 8, 8, 2816),
    Shape("llama2", "1B", 18, 2048, 16, 16, 5632),
    Shape("llama2", "7B", 32, 4096, 32, 32, 11008),
    Shape("llama2", "10B", 32, 5120, 40, 40, 13824),
    Shape("llama2", "13B", 40, 5120, 40, 40, 13824),
    Shape("llama2", "26B", 80, 5120, 40, 40, 13824),
    Shape("llama2", "70B", 80, 8192, 64, 8, 28672),
    Shape("llama3", "1B", 18, 2048, 16, 8, 7168),
    Shape("llama3", "10B", 42, 4096, 32, 8, 14336),
    Shape("llama3", "70B", 80, 8192, 64, 8, 28672),
)
"""Models of both lists of `get_model` and of name_model (config.py): 8B and 405B of llama3 are not in the latter."""


def shape_of(model: Model) -> Shape | None:
    """The model of prime with this shape and vocabulary, None if it has none."""
    own = (model.layers, model.hidden, model.heads, model.kv_heads, model.ffn_hidden)
    if model.mlp != "swiglu" or model.tied_embeddings or model.learned_positions or model.experts:
        return None
    if model.head_dim * model.heads != model.hidden:
        return None
    return next((one for one in SHAPES if one[2:] == own and VOCAB[one.kind] == model.vocab), None)


def options(kind: str) -> Options:
    """The facts of a model that prime sets itself, by type_model."""
    return (
        Option("rope_theta", THETA[kind]),
        Option("rope_scaling", "none"),
        Option("rotary_fraction", 1),
        Option("norm_epsilon", 1e-5),
        Option("qk_norm", False),
        Option("qkv_bias", False),
    )
