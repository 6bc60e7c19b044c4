"""int8: one byte a value, as INTELLECT-1 sends outer gradients (arXiv 2412.01152, section 2.2).

The range of each block of values is cut into 256 steps. At each island of the ring the bytes become fp32 values, are added up
and are cut anew. In messages the same code carries activations and their gradients."""

from __future__ import annotations

from sim.compression import EXCHANGES, MESSAGES, Code
from sim.workload.model import Model

NAME = "int8"
ARGUMENT = ""
USES = (EXCHANGES, MESSAGES)
SUMMED = True
LOSSY = True
FEEDBACK = False
PASSES = 4.5  # range: read 4 bytes; quantise: read 4 and write 1; read 1 and write 4; the addition reads 4 once more

BLOCK = 4096
"""Values that share a scale and an offset, of 4 bytes each. A guess; a smaller block is more exact and sends more."""


def bytes_per_value(model: Model, argument: str, width: int) -> float:
    """1 byte, and its share of the scale and the offset of its block."""
    return 1.0 + 8 / BLOCK


def code(argument: str, width: int, slowness: float) -> Code:
    """The sender reads a value for the range of its block and once more to write the byte; the receiver writes a value."""
    return Code(1.0 + 8 / BLOCK, 2 * width + 1, 1 + width)
