"""top-k=SHARE: only the largest values (Stich et al., arXiv 1809.07599; Lin et al., arXiv 1712.01887).

An island sends the values of largest magnitude and their positions, and adds the others to the values of its next exchange
(error feedback). Islands choose unlike positions, so each needs the values of all others.

A message has the largest values of an activation or its gradient. The receiver takes 0 for the others, and the sender keeps
nothing of them, because the next message is of other samples."""

from __future__ import annotations

import re

from sim.compression import EXCHANGES, FULL_BYTES, MESSAGES, Code
from sim.errors import OptionError
from sim.workload.model import Model

NAME = "top-k"
ARGUMENT = "1%"
USES = (EXCHANGES, MESSAGES)
SUMMED = False
LOSSY = True
FEEDBACK = True
PASSES = 5.0  # add the feedback: read two, write one; select: read one; write what is left: one
POSITION = 4
"""Bytes of the position of a value in the tensor."""
PAIR = FULL_BYTES + POSITION
"""Bytes of an fp32 value that is sent, with its position."""


def share_of(argument: str, name: str = NAME) -> float:
    """The share of the values that is sent: `1%` is 0.01. Raises OptionError."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*%", argument)
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share <= 1:
        raise OptionError(
            f"compression {name}={argument}: write the share of the values that is sent, such as {name}={ARGUMENT}"
        )
    return share


def bytes_per_value(model: Model, argument: str, width: int) -> float:
    """Bytes of the values that are sent and of their positions."""
    return share_of(argument) * (width + POSITION)


def code(argument: str, width: int, slowness: float) -> Code:
    """The same share on every hop."""
    return code_of(share_of(argument), width)


def code_of(share: float, width: int) -> Code:
    """The sender reads all values and writes a share of them; the receiver writes zeros, then the values at their positions."""
    sent = share * (width + POSITION)
    return Code(sent, width + sent, width + sent + share * width)
