"""fp16: values rounded to float16."""

from __future__ import annotations

import torch

from holmes_sim.torch_backend.compressors import Codec, Rounded

NAME = "fp16"


def codec(argument: str) -> Codec:
    """Values of 2 bytes."""
    return Rounded(torch.float16)
