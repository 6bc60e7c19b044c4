"""diloco: local steps, and an outer optimizer, SGD with Nesterov momentum, that steps along the mean change of the weights
(Douillard et al., arXiv 2311.08105, algorithm 1)."""

from __future__ import annotations

from sim.sync import Exchange, Sync

NAME = "diloco"
PRICE = "bounded"
SENDS = "outer gradients"
OUTER = "nesterov"
TAKES = ("inner_steps",)
STATE_BYTES = 8.0  # the weights of the last exchange and the outer momentum
PASSES = 7.0  # read weights, old weights, mean and momentum; write momentum, weights and old weights
LEARNING_RATE = 0.7
"""Learning rate of the outer optimizer (arXiv 2311.08105, section 3.1)."""
MOMENTUM = 0.9
"""Nesterov momentum of the outer optimizer (same place)."""


def exchanges(sync: Sync) -> tuple[Exchange, ...]:
    """All parameters at the end of the outer period; islands wait."""
    return (Exchange(1.0, sync.inner_steps, 0),)
