"""none: full precision."""

from __future__ import annotations

import torch

from holmes_sim.torch_backend.compressors import Codec, Rounded

NAME = "none"


def codec(argument: str) -> Codec:
    """Values of 4 bytes."""
    return Rounded(torch.float32)
