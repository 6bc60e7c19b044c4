"""Pydantic model of the shape of a language model: a catalogue entry, or `model` of a workload."""

from __future__ import annotations

from pydantic import Field, model_validator

from sim.formats.fields import Count, Flag, Fraction, Measured, NonNegative, RotaryBase, StrictModel, Whole
from sim.workload import launch_facts
from sim.workload.launch_facts import ROPE_SCALING
from sim.workload.model import ATTENTION_KINDS, MLP_KINDS, Model


class ModelFacts(StrictModel):
    """Shape of a transformer language model; `ffn_hidden` is the width of the MLP, or of one expert (`sim.workload.model`). The
    keys after `attention_sinks` change no step time; exports write them (`sim.workload.launch_facts`)."""

    name: str = "model"
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count | None = None
    head_dim: Count | None = None
    ffn_hidden: Count
    vocab: Count
    mlp: str = Field("gelu", json_schema_extra={"enum": list(MLP_KINDS)})
    tied_embeddings: Flag = True
    learned_positions: Whole = 0
    experts: Whole = 0
    experts_per_token: Whole = 0
    shared_ffn_hidden: Whole = 0
    dense_layers: Whole = 0
    dense_ffn_hidden: Whole = 0
    moe_layer_step: Count = 1
    attention: str = Field("standard", json_schema_extra={"enum": list(ATTENTION_KINDS)})
    q_lora_rank: Whole = 0
    kv_lora_rank: Whole = 0
    qk_nope_head_dim: Whole = 0
    qk_rope_head_dim: Whole = 0
    v_head_dim: Whole = 0
    mtp_layers: Whole = 0
    sliding_window: Whole = 0
    sliding_window_every: Count = 1
    full_attention_every: Whole = 0
    n_group: Count = 1
    topk_group: Count = 1
    attention_sinks: Flag = False
    rope_theta: RotaryBase | None = None
    rope_scaling: str | None = Field(None, json_schema_extra={"enum": [*ROPE_SCALING, None]})
    rope_factor: Measured | None = None
    rotary_fraction: Fraction | None = None
    norm_epsilon: NonNegative | None = None
    qk_norm: Flag | None = None
    qkv_bias: Flag | None = None
    init_std: Measured | None = None
    sources: dict[str, str] = Field({})

    @model_validator(mode="after")
    def _consistent(self) -> ModelFacts:
        self.model()
        return self

    def model(self) -> Model:
        """The model shape of the simulator."""
        facts = self.model_dump(include=set(ModelFacts.model_fields) - {"sources", *launch_facts.KEYS})
        facts["launch"] = launch_facts.LaunchFacts(**{key: getattr(self, key) for key in launch_facts.KEYS})
        facts["kv_heads"] = self.kv_heads or self.heads
        facts["head_dim"] = self.head_dim or 0
        return Model(**facts)
