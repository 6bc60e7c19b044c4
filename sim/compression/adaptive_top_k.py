"""adaptive-top-k=SHARE: the largest values of each message, of a share that follows from the speed of its hop.

The slowest hop between clusters sends the share of its values that the argument says; a hop that takes 1/f of its seconds sends
f times this share, or its message whole where that has no more bytes. So all compressed hops take about as long as the slowest.

The idea is AdaTopK of FusionLLM (arXiv 2410.12707, abstract: it adaptively compresses activations and gradients at the slowest
links). The rule is a guess: the paper's formula could not be confirmed. Remembered, it keeps one value in
max(1, 3 r R / max R) of a link with transfer time R; that is this rule with SHARE = 1 / (3 r)."""

from __future__ import annotations

from sim.compression import MESSAGES, Code
from sim.compression.top_k import code_of, share_of

NAME = "adaptive-top-k"
ARGUMENT = "10%"
USES = (MESSAGES,)


def code(argument: str, width: int, slowness: float) -> Code:
    """The share of the slowest hop over the slowness of this one, at most all values."""
    return code_of(min(1.0, share_of(argument, NAME) / slowness), width)
