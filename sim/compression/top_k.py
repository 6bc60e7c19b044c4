"""top-k=SHARE: only the largest values, with error feedback (Stich et al., arXiv 1809.07599; Lin et al., arXiv 1712.01887).

An island sends the values of largest magnitude and their positions, and adds the others to the values of its next exchange.
Islands choose unlike positions, so each needs the values of all others."""

from __future__ import annotations

import re

from sim.errors import OptionError
from sim.workload.model import Model

NAME = "top-k"
ARGUMENT = "1%"
SUMMED = False
LOSSY = True
FEEDBACK = True
PASSES = 5.0  # add the feedback: read two, write one; select: read one; write what is left: one
PAIR = 8
"""Bytes of a value that is sent: 4 of fp32 and 4 of its position in the tensor."""


def share_of(argument: str) -> float:
    """The share of the values that is sent: `1%` is 0.01. Raises OptionError."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*%", argument)
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share <= 1:
        raise OptionError(f"compression top-k={argument}: write the share of the values that is sent, such as top-k={ARGUMENT}")
    return share


def bytes_per_parameter(model: Model, argument: str) -> float:
    """8 bytes for each value that is sent."""
    return share_of(argument) * PAIR
