"""Adapters of a workload in files: `workload.adapter`, with the names of Hugging Face PEFT's LoraConfig."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from sim.errors import TopologyError
from sim.formats.fields import Count, StrictModel
from sim.workload.adapter import ALL_LINEAR, BASE_BYTES, PRODUCTS, Adapter
from sim.workload.model import Model


class AdapterFacts(StrictModel):
    """LoRA: adapters of rank `r` are trained, all other weights are frozen."""

    r: Count
    target_modules: list[str] = Field(
        list(PRODUCTS), description=f"linear layers that have an adapter: {ALL_LINEAR}, or a list of {', '.join(PRODUCTS)}"
    )
    base_precision: str | None = Field(
        None, description=f"frozen weights of linear layers: {', '.join(BASE_BYTES)} (QLoRA); without it, as `precision`"
    )

    @field_validator("target_modules", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return list(PRODUCTS) if value == ALL_LINEAR else [name.strip() for name in value.split(",")]

    @model_validator(mode="after")
    def _known(self) -> AdapterFacts:
        self.adapter()
        return self

    def adapter(self) -> Adapter:
        """The adapter of the simulator. Raises ValueError for unknown names."""
        return Adapter(self.r, tuple(self.target_modules), self.base_precision or "")


def written(adapter: Adapter) -> dict[str, Any]:
    """An adapter as plain data."""
    modules = ALL_LINEAR if adapter.target_modules == tuple(PRODUCTS) else list(adapter.target_modules)
    base = {"base_precision": adapter.base_precision} if adapter.base_precision else {}
    return {"r": adapter.r, "target_modules": modules, **base}


def check(adapter: Adapter | None, model: Model, precision: str) -> None:
    """Raise TopologyError where adapters of this model are not modelled."""
    try:
        if adapter is not None:
            adapter.check(model, precision)
    except ValueError as error:
        raise TopologyError(str(error)) from None
