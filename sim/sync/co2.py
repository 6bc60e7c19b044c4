"""co2: local steps whose exchange runs beside the whole next outer period, so that its result is one period old
(Sun et al., arXiv 2401.16265, section 3.2). A penalty for the staleness and clipping of the outer momentum keep it stable."""

from __future__ import annotations

from sim.sync import Exchange, Sync
from sim.sync.diloco import PASSES as OUTER_PASSES

NAME = "co2"
PRICE = "bounded"
SENDS = "outer gradients"
OUTER = "nesterov"
TAKES = ("inner_steps",)
STATE_BYTES = 16.0  # weights of the last two exchanges, outer momentum, and the values that are under way
LEARNING_RATE = 0.7
MOMENTUM = 0.5
"""Learning rate and momentum of the outer optimizer. Guesses: of 1 and 0, 1 and 0.2, and these, what gives the least loss of
`benchmarks.sync_losses`. DiLoCo's momentum of 0.9 is too much with a delay of one period. The authors' code has a learning rate
of 1 and a momentum of 0 up to 16 devices, 0.2 up to 32, 0.5 up to 64, else 0.6 (weigao266/fairseq-CO2,
distributed_fairseq_model.py)."""
PASSES = OUTER_PASSES + 4.0  # the staleness gap reads two weights, and the copy that is sent is read and written


def exchanges(sync: Sync) -> tuple[Exchange, ...]:
    """All parameters at the end of the outer period; the result is needed at the end of the next one."""
    return (Exchange(1.0, sync.inner_steps, sync.inner_steps),)
