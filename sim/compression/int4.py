"""int4: half a byte a value, the size of the 4-bit floats that Streaming DiLoCo sends (arXiv 2501.18512, section 2.3).

Values are scaled by block; islands receive the values of all others and add them up in fp32, so that no sum is rounded."""

from __future__ import annotations

from sim.compression import EXCHANGES, MESSAGES, Code
from sim.compression.int8 import BLOCK
from sim.workload.model import Model

NAME = "int4"
ARGUMENT = ""
USES = (EXCHANGES, MESSAGES)
SUMMED = False
LOSSY = True
FEEDBACK = False
PASSES = 4.25  # range: read 4 bytes; quantise: read 4 and write 1/2; read 1/2 and write 4; the addition reads 4 once more


def bytes_per_value(model: Model, argument: str, width: int) -> float:
    """Half a byte, and its share of the scale of its block."""
    return 0.5 + 4 / BLOCK


def code(argument: str, width: int, slowness: float) -> Code:
    """The sender reads a value for the scale of its block and once more to write half a byte; the receiver writes a value."""
    return Code(0.5 + 4 / BLOCK, 2 * width + 0.5, 0.5 + width)
