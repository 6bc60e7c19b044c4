"""TODO sim.plan.prediction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the plan promises: the simulated step. `peak_memory_bytes` by pipeline place; money and energy
    (`sim.results.cost_energy`) are None where a price, or watts, are not known."""

    step_s: float
    samples_per_s: float
    tokens_per_s: float
    tflops_per_device: float
    mfu: float
    peak_memory_bytes: tuple[float, ...]
    bubble_fraction: float
    exposed_communication_s: float
    upper_bound_fraction: float
    usd_per_token: float | None = None
    joules_per_token: float | None = None


OBJECTIVES = {"step-time": "step_s", "cost": "usd_per_token", "energy": "joules_per_token"}
"""What a plan may be chosen for -> the number of its prediction that is to be small."""
