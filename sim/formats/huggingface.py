"""Reader of Hugging Face model configurations: `config.json` -> Model, without the transformers library.

Each family has other keys for the same numbers; `FAMILIES` is their table. The keys, and the meaning of absent or null keys,
are those of `configuration_<family>.py` in huggingface/transformers, src/transformers/models:

- gpt2: `n_inner` null means 4 h. bloom has no such key, its MLP is always 4 h wide; `n_embed` takes precedence over
  `hidden_size`.
- `num_key_value_heads` null means the number of heads. Absent it has this meaning for llama only: the other families default to
  the number of one certain model (mistral 8, qwen2 32), so the key is required there. The same holds for qwen3's head_dim.
- opt stores two more positions than `max_position_embeddings`; families with rotary embeddings or ALiBi store none.

The kind of MLP follows the family, not the activation function in the file: opt's ReLU counts as `gelu`, which has the same
matrices, biases and traffic. Left out, as each is below 0.1 % of the parameters: biases of qwen2's query, key and value
products, the gate of qwen2_moe's shared experts, the norms of qwen3's heads, the norm after bloom's embedding. The vocabulary
is used as written, without padding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sim.errors import TopologyError
from sim.formats import huggingface_launch
from sim.formats.documents import Document, parse, read_text
from sim.formats.huggingface_families import FAMILIES, GEMMA3, Family, Keys
from sim.formats.suggestions import suggestion
from sim.workload.model import Model

UNLIKE = (
    "dense_layers", "dense_ffn_hidden", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    "mtp_layers", "sliding_window",
)  # fmt: skip
"""Numbers of families whose layers differ or have latent attention; 0 for all others."""


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
    model: dict[str, Any] = {
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
        "attention_sinks": family.attention_sinks,
    }
    model |= _unlike(config, model)
    launch = huggingface_launch.read(config.values, config.fault)
    tied = config.flag("tie_word_embeddings", default=family.tied)
    name = config.text("_name_or_path") or _named(file) or str(config.values["model_type"])
    if not config.faults:
        _check_fit(config, model)
    if config.faults:
        raise TopologyError("\n".join(config.faults))
    try:
        return Model(name=name, mlp=family.mlp, tied_embeddings=tied, attention=family.attention, launch=launch, **model)
    except ValueError as error:
        raise TopologyError(document.fault((), str(error))) from None


def _unlike(config: _Config, model: dict[str, Any]) -> dict[str, Any]:
    """Numbers of latent attention, of layers that differ, and of those that predict further tokens."""
    found = {key: config.number(key, default=0) for key in UNLIKE} | _groups(config)
    found["moe_layer_step"] = config.number("moe_layer_step", default=1)
    found["sliding_window_every"] = config.family.sliding_window_every if found["sliding_window"] else 1
    pattern = GEMMA3 if config.family.full_attention_every else 0
    found["full_attention_every"] = config.number("full_attention_every", default=pattern) if found["sliding_window"] else 0
    if shared := config.number("shared_experts", default=0):
        found["shared_ffn_hidden"] = shared * model["ffn_hidden"]
    if not found["dense_layers"] and found["moe_layer_step"] == 1:
        found["dense_ffn_hidden"] = 0
    return found


def _groups(config: _Config) -> dict[str, Any]:
    """The groups from which a router chooses; `topk_method` greedy takes experts of all (DeepSeek-V2-Lite)."""
    groups = {key: config.number(key, default=1) for key in ("n_group", "topk_group")}
    return dict.fromkeys(groups, 1) if config.text("topk_method") == "greedy" else groups


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
        none = 0 if default == 0 and field in self.family.may_be_absent else 1
        if isinstance(value, int) and not isinstance(value, bool) and value >= none:
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


def _check_fit(config: _Config, model: dict[str, Any]) -> None:
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
