"""Table of sync strategies by the bandwidth of the links between clusters."""

from __future__ import annotations

from sim.islands.token_worth import TokenWorth


def worth_text(worth: TokenWorth | None, short: bool = False) -> str:
    """What a token is worth: `1`, `0.86 (0.76 to 0.97)`, or `unknown`."""
    if worth is None:
        return "unknown"
    if worth.low == worth.high:
        return f"{worth.expected:.3g}"
    spread = f"{worth.low:.2f} to {worth.high:.2f}"
    return f"{worth.expected:.2f} ({spread})" if short else f"{worth.expected:.2f} ({spread}) tokens of synchronous training"
