"""none: full precision, 4 bytes a parameter."""

from __future__ import annotations

from sim.workload.model import Model

NAME = "none"
ARGUMENT = ""
SUMMED = True
LOSSY = False
FEEDBACK = False
PASSES = 0.0


def bytes_per_parameter(model: Model, argument: str) -> float:
    """4 bytes: fp32."""
    return 4.0
