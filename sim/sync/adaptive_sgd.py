"""adaptive-sgd: local steps for islands of unlike speed: each has a batch in proportion to its speed and a learning rate in
proportion to its batch, and the mean of the weights is weighted by the batches (Ma et al., arXiv 2110.07029, section 4)."""

from __future__ import annotations

from sim.sync import Exchange, Sync

NAME = "adaptive-sgd"
PRICE = "bounded"
SENDS = "outer gradients"
OUTER = "mean"
TAKES = ("inner_steps",)
STATE_BYTES = 4.0  # the weights of the last exchange
PASSES = 4.0  # read weights and old weights, write both


def exchanges(sync: Sync) -> tuple[Exchange, ...]:
    """All parameters at the end of the outer period; islands wait."""
    return (Exchange(1.0, sync.inner_steps, 0),)


def learning_rates(batches: tuple[int, ...]) -> tuple[float, ...]:
    """Factor on the learning rate of each island: its batch over the mean batch (linear scaling)."""
    mean = sum(batches) / len(batches)
    return tuple(batch / mean for batch in batches)
