"""powersgd=RANK: products of thin matrices, summed by two all_reduces (`holmes_sim.torch_backend.islands.powersgd`)."""

from __future__ import annotations

from holmes_sim.torch_backend.compressors import Codec
from sim.compression.powersgd import NAME, rank_of

__all__ = ["NAME", "codec"]


def codec(argument: str) -> Codec | None:
    """None: the exchange computes between its two messages. Raises OptionError for a wrong rank."""
    rank_of(argument)
    return None
