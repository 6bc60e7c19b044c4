"""independent: islands train a model each and exchange nothing, as the experts of Decentralized Diffusion Models
(McAllister et al., arXiv 2501.05450), which a router joins after training."""

from __future__ import annotations

from sim.sync import Exchange, Sync

NAME = "independent"
PRICE = "changed"
SENDS = ""
OUTER = "step"
TAKES = ()
STATE_BYTES = 0.0
PASSES = 0.0


def exchanges(sync: Sync) -> tuple[Exchange, ...]:
    """None."""
    return ()
