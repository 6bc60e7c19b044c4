"""What is trained, in words."""

from __future__ import annotations

from sim.units import GIGA
from sim.workload.workload import Workload


def model_text(workload: Workload) -> str:
    """The model with its parameters, and with those of adapters where these are trained in place of the weights."""
    size = f"{workload.model.parameters / GIGA:.3g} B parameters"
    if adapter := workload.adapter:
        number = workload.trained_parameters / GIGA
        base = f" in {adapter.base_precision}" if adapter.base_precision else ""
        size += f", frozen{base}; {number:.2g} B trained in adapters of rank {adapter.r}"
    return f"{workload.model.name} ({size})"
