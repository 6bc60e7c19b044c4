"""none: full precision: 4 bytes a value of gradients, and those of activations in messages."""

from __future__ import annotations

from sim.compression import EXCHANGES, MESSAGES, Code
from sim.workload.model import Model

NAME = "none"
ARGUMENT = ""
USES = (EXCHANGES, MESSAGES)
SUMMED = True
LOSSY = False
FEEDBACK = False
PASSES = 0.0


def bytes_per_value(model: Model, argument: str, width: int) -> float:
    """All bytes."""
    return float(width)


def code(argument: str, width: int, slowness: float) -> Code:
    """Whole values, which nothing has to compress."""
    return Code(width, 0.0, 0.0)
