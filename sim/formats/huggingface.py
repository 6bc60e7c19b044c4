"""Reader of Hugging Face model configurations: `config.json` -> Model, without the transformers library.

Each family has other keys for the same numbers; `FAMILIES` is their table. The keys, and the meaning of absent or null keys,
are those of `configuration_<family>.py` in huggingface/transformers, src/transformers/models:

- gpt2: `n_inner` null means 4 h. bloom has no such key, its MLP is always 4 h wide; `n_embed` takes precedence over
`hidden_size`. - `num_key_value_heads` null means the number of heads. Absent it has this meaning for llama only: the other
families default to
  the number of one certain model (mistral 8, qwen2 32), so the key is required there. The same holds for qwen3's head_dim.
- opt stores two more positions than `max_position_embeddings`; families with rotary embeddings or ALiBi store none.

The kind of MLP follows the family, not the activation function in the file: opt's ReLU counts as `gelu`, which has the same
matrices, biases and traffic. Left out, as each is below 0.1 % of the parameters: biases of qwen2's query, key and value
products, the gate of qwen2_moe's shared experts, the norms of qwen3's heads, the norm after bloom's embedding. The vocabulary
is used as written, without padding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from sim.errors import TopologyError
from sim.formats.documents import Document, parse, read_text, suggestion
from sim.workload.model import Model

Keys: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A model family: for each number its possible keys, of which the first present one is used; () if it has no key."""

    mlp: str
    tied: bool
    layers: Keys = ("num_hidden_layers",)
    hidden: Keys = ("hidden_size",)
    heads: Keys = ("num_attention_heads",)
    kv_heads: Keys = ()
    head_dim: Keys = ()
    ffn_hidden: Keys = ("intermediate_size",)
    vocab: Keys = ("vocab_size",)
    positions: Keys = ()
    more_positions: int = 0
    experts: Keys = ()
    experts_per_token: Keys = ()
    shared_ffn_hidden: Keys = ()
    may_be_absent: Keys = ("head_dim",)


_KV = ("num_key_value_heads",)
_DIM = ("head_dim",)
_LAYERS = ("n_layer", "num_hidden_layers")
_HEADS = ("n_head", "num_attention_heads")
_ROUTED = ("num_experts_per_tok",)

_QWEN_MOE = Family(
    "swiglu",
    tied=False,
    kv_heads=_KV,
    head_dim=_DIM,
    ffn_hidden=("moe_intermediate_size",),
    experts=("num_experts", "num_local_experts"),
    experts_per_token=_ROUTED,
)

FAMILIES: dict[str, Family] = {
    "llama": Family("swiglu", tied=False, kv_heads=_KV, head_dim=_DIM, may_be_absent=("head_dim", "kv_heads")),
    "mistral": Family("swiglu", tied=False, kv_heads=_KV, head_dim=_DIM),
    "mixtral": Family(
        "swiglu",
        tied=False,
        kv_heads=_KV,
        head_dim=_DIM,
        experts=("num_local_experts", "num_experts"),
        experts_per_token=_ROUTED,
    ),
    "qwen2": Family("swiglu", tied=False, kv_heads=_KV, head_dim=_DIM),
    "qwen2_moe": replace(_QWEN_MOE, shared_ffn_hidden=("shared_expert_intermediate_size",)),
    "qwen3": Family("swiglu", tied=False, kv_heads=_KV, head_dim=_DIM, may_be_absent=()),
    "qwen3_moe": _QWEN_MOE,
    "gpt2": Family(
        "gelu",
        tied=True,
        layers=_LAYERS,
        hidden=("n_embd", "hidden_size"),
        heads=_HEADS,
        ffn_hidden=("n_inner",),
        positions=("n_positions", "max_position_embeddings"),
        may_be_absent=("ffn_hidden",),
    ),
    "gpt_neox": Family("gelu", tied=False),
    "opt": Family("gelu", tied=True, ffn_hidden=("ffn_dim",), positions=("max_position_embeddings",), more_positions=2),
    "bloom": Family("gelu", tied=True, layers=_LAYERS, hidden=("n_embed", "hidden_size"), heads=_HEADS, ffn_hidden=()),
}
"""`model_type` of a config.json -> its keys."""

UNMODELLED: dict[str, str] = {
    "deepseek_v2": "multi-head latent attention is not modelled",
    "deepseek_v3": "multi-head latent attention is not modelled",
}
"""`model_type` of known families that a Model cannot represent -> reason."""


def read(path: str | Path) -> Model:
    """The model of a `config.json`; `path` is the file or its folder.

    The model's name is `_name_or_path` of the file, else the file's (`_named`), else the family. Raises TopologyError with one
    line per fault.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "config.json"
    document = parse(str(file), read_text(file))
    config = _Config(document, _family(document))
    family, hidden, heads = config.family, config.number("hidden"), config.number("heads")
    positions = config.number("positions", default=0)
    model = {
        "layers": config.number("layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.number("kv_heads", default=heads),
        "head_dim": config.number("head_dim", default=0),
        "ffn_hidden": config.number("ffn_hidden", default=4 * hidden),
        "vocab": config.number("vocab"),
        "learned_positions": positions + family.more_positions,
        "experts": config.number("experts", default=0),
        "experts_per_token": config.number("experts_per_token", default=0),
        "shared_ffn_hidden": config.number("shared_ffn_hidden", default=0),
    }
    tied = config.flag("tie_word_embeddings", default=family.tied)
    name = config.text("_name_or_path") or _named(file) or str(config.values["model_type"])
    if not config.faults:
        _check_fit(config, model)
    if config.faults:
        raise TopologyError("\n".join(config.faults))
    return Model(name=name, mlp=family.mlp, tied_embeddings=tied, **model)


def _family(document: Document) -> Family:
    """The family that the file names; raises TopologyError if it is not in the table."""
    values = document.value
    if not isinstance(values, dict):
        kind = "an empty file" if values is None else type(values).__name__
        raise TopologyError(
            document.fault((), f"a mapping of keys is expected here, not {kind}; a config.json starts with '{{'")
        )
    if "text_config" in values:
        what = "a model of text and images or sound is not modelled; write its language model as a config.json of its own"
        raise TopologyError(document.fault(("text_config",), what))
    known = f"known: {', '.join(sorted(FAMILIES))}"
    if "model_type" not in values:
        raise TopologyError(document.fault(("model_type",), f"this key is missing; it names the family; {known}"))
    name = values["model_type"]
    if not isinstance(name, str):
        raise TopologyError(
            document.fault(("model_type",), f"the name of a family is expected here, not {_shown(name)}; {known}")
        )
    if name in UNMODELLED:
        raise TopologyError(document.fault(("model_type",), f"{name!r} cannot be read: {UNMODELLED[name]}"))
    if name not in FAMILIES:
        near = suggestion(name, FAMILIES)
        wish = f"{near} {known}" if "did you mean" in near else near
        raise TopologyError(document.fault(("model_type",), f"{name!r} is unknown{wish}"))
    return FAMILIES[name]


class _Config:
    """Reads values of one file by the keys of its family and collects the faults."""

    def __init__(self, document: Document, family: Family):
        assert isinstance(document.value, dict)
        self.document, self.family, self.values = document, family, document.value
        self.faults = [document.fault(path, f"key given twice; line {line} repeats it") for path, line in document.duplicates]

    def key(self, field: str) -> str:
        """The key of the file for a field of the family; the preferred one if it is absent."""
        keys: Keys = getattr(self.family, field)
        return next((key for key in keys if key in self.values), keys[0])

    def number(self, field: str, default: int | None = None) -> int:
        """A whole number of at least 1; the default if the family lacks the key or allows it to be absent or null."""
        if not getattr(self.family, field) and default is not None:
            return default
        key = self.key(field)
        value = self.values.get(key)
        may_be_null = field in self.family.may_be_absent or (field == "kv_heads" and key in self.values)
        if value is None and may_be_null and default is not None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        if key in self.values:
            self.fault(key, f"a whole number of at least 1 is expected here, not {_shown(value)}")
        else:
            family = self.values["model_type"]
            self.fault(key, f"this key is missing; a config.json of family {family} gives a whole number here")
        return 1

    def flag(self, key: str, default: bool) -> bool:
        """A boolean; the default if the key is absent or null."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            self.fault(key, f"true or false is expected here, not {_shown(value)}")
        return default if value is None else value is True

    def text(self, key: str) -> str:
        """A text; empty if the key is absent or null."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            self.fault(key, f"a text is expected here, not {_shown(value)}")
        return value if isinstance(value, str) else ""

    def fault(self, key: str, message: str) -> None:
        """Add a fault of a key."""
        self.faults.append(self.document.fault((key,), message))


def _check_fit(config: _Config, model: dict[str, int]) -> None:
    """Add faults of values that do not fit each other, and of shapes that Model cannot represent."""
    values, hidden, heads = config.values, model["hidden"], model["heads"]
    if not model["head_dim"] and hidden % heads:
        config.fault(config.key("heads"), f"{heads} does not divide {config.key('hidden')} {hidden}; write a divisor of it")
    if heads % model["kv_heads"]:
        what = f"{model['kv_heads']} does not divide {config.key('heads')} {heads}; write a divisor of it"
        config.fault(config.key("kv_heads"), what)
    if model["experts_per_token"] > model["experts"]:
        what = f"{model['experts_per_token']} is more than {config.key('experts')} {model['experts']}"
        config.fault(config.key("experts_per_token"), what)
    projected = values.get("word_embed_proj_dim")
    if projected is not None and projected != hidden:
        what = f"{_shown(projected)} is not hidden_size {hidden}; word embeddings of another width (opt-350m) are not modelled"
        config.fault("word_embed_proj_dim", what)
    for key, equal_layers in (("decoder_sparse_step", 1), ("mlp_only_layers", [])):
        if values.get(key) not in (None, equal_layers):
            what = f"{_shown(values[key])} mixes dense and expert layers; only equal layers are modelled, {equal_layers} here"
            config.fault(key, what)


def _shown(value: object) -> str:
    """A value as in JSON."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


def _named(file: Path) -> str:
    """Model name from the path: `llama8b` for llama8b.json; the folder's name for config.json."""
    return file.stem if file.name != "config.json" else file.resolve().parent.name
