"""Prediction of a plan's performance by simulation, and the objectives that a plan can minimize."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prediction:
    """Results of the simulated step. `peak_memory_bytes` has one entry per pipeline rank. `usd_per_token` and
    `joules_per_token` (`sim.results.cost_energy`) are None if a price, or a power, is unknown."""

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
"""Objective of the planner -> the field of `Prediction` that it minimizes."""
