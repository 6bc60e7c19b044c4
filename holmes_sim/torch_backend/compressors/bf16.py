"""bf16: values rounded to bfloat16."""

from __future__ import annotations

import torch

from holmes_sim.torch_backend.compressors import Codec, Rounded

NAME = "bf16"


def codec(argument: str) -> Codec:
    """Values of 2 bytes."""
    return Rounded(torch.bfloat16)
