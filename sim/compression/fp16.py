"""fp16: values rounded to 2 bytes, and added up in fp32 at each island of the ring."""

from __future__ import annotations

from sim.compression import EXCHANGES
from sim.workload.model import Model

NAME = "fp16"
ARGUMENT = ""
USES = (EXCHANGES,)
SUMMED = True
LOSSY = True
FEEDBACK = False
PASSES = 3.0  # read 4 bytes and write 2; read 2 and write 4


def bytes_per_value(model: Model, argument: str, width: int) -> float:
    """2 bytes."""
    return 2.0
