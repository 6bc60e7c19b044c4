"""local-sgd: islands train alone for some steps, then take the mean of their weights (Stich, arXiv 1805.09767)."""

from __future__ import annotations

from sim.sync import Exchange, Sync

NAME = "local-sgd"
PRICE = "bounded"
SENDS = "outer gradients"
OUTER = "mean"
TAKES = ("inner_steps",)
STATE_BYTES = 4.0  # the weights of the last exchange, from which the change is taken
PASSES = 4.0  # read weights and old weights, write both


def exchanges(sync: Sync) -> tuple[Exchange, ...]:
    """All parameters at the end of the outer period; islands wait."""
    return (Exchange(1.0, sync.inner_steps, 0),)
