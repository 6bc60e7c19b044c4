"""Pydantic models of a profile: measured seconds of layers. The docstrings are descriptions in the JSON Schema."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from sim.formats.fields import Count, Measured, NonNegative, Precision, StrictModel
from sim.formats.model_facts import ModelFacts


class ProfileModelFacts(ModelFacts):
    """A profiled model: its shape, tokens per sequence, and the parameters that `layer_update_s` updates, of all tp ranks."""

    seq_len: Count
    updated_parameters: Count | None = None


class ProfileRowFacts(StrictModel):
    """Measured seconds of one rank for one microbatch. An update of 0 or an absent head was not measured."""

    model: str
    gpu: str
    tp: Count
    micro_batch: Count
    layer_forward_s: Measured
    layer_backward_s: Measured
    layer_update_s: NonNegative = 0.0
    embedding_forward_s: NonNegative
    embedding_backward_s: NonNegative
    head_forward_s: NonNegative | None = None
    head_backward_s: NonNegative | None = None
    n_entries: Count | None = None
    spread: NonNegative | None = Field(
        None, description="half the interquartile range of the layer's seconds, over their median"
    )


class ProfileFacts(StrictModel):
    """Measured seconds of layers. `devices`: name in the catalogue of each `gpu`; `in_place`: devices outside the catalogue,
    which a topology describes itself; `left_out`: models whose rows are ignored, each with the reason. `collectives`: "inside"
    if the seconds contain the collectives of tensor-parallel ranks, "apart" if each rank was measured alone.

    A file without `format` takes its precision and missing names from the shipped profile `sailor`.
    """

    format: Literal["holmes-sim/profile/1"] | None = None
    source: str | dict[str, str | list[str]] = ""
    notes: list[str] = Field([])
    precision: Precision | None = None
    collectives: Literal["inside", "apart"] = "inside"
    devices: dict[str, str] = Field({})
    in_place: list[str] = Field([])
    models: dict[str, ProfileModelFacts] = Field({})
    left_out: dict[str, str] = Field({})
    layer_profiles: list[ProfileRowFacts] = Field(min_length=1)
    network_fits: list[dict[str, Any]] = Field([])
