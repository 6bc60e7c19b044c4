"""Notes below tables that have exact plans and plans of islands side by side: what is given up, and what a token is worth."""

from __future__ import annotations

from collections.abc import Iterable

from holmes_sim.printing.islands import GIVES_UP
from sim.islands.token_worth import SOURCE
from sim.sync import PRICES, Price

SYNC_COLUMNS = ("tokens/s", "effective", "effective\nat least", "sync", "gives up")
"""Columns with the numbers of a plan that may be one of islands."""


def sync_cells(tokens_per_s: float, worth: tuple[float, float] | None, sync: str, price: Price) -> tuple[str, ...]:
    """Cells of `SYNC_COLUMNS`; `worth`: the expected and the least worth of a token, None if it is unknown."""
    effective = ("unknown", "unknown") if worth is None else tuple(f"{tokens_per_s * one:,.0f}" for one in worth)
    return f"{tokens_per_s:,.0f}", *effective, sync, GIVES_UP[price]


def sync_notes(plans: Iterable[tuple[Price, bool]]) -> list[str]:
    """A line for each thing that plans give up, and where the worth of a token is from; `plans`: the price of each, and whether
    the worth of a token is known."""
    every = list(plans)
    lines = [
        f"{GIVES_UP[price]}: {PRICES[price]}; compare such a plan with an exact one by effective tokens/s only."
        for price in PRICES
        if price != "exact" and any(one == price for one, _ in every)
    ]
    if any(price != "exact" and is_known for price, is_known in every):
        lines.append(
            f"effective: tokens of synchronous training per second with the same loss, and the least of its range ({SOURCE})."
        )
    if not all(is_known for _, is_known in every):
        lines.append("unknown: what a token is worth is not published for this strategy; it is not compared with another one.")
    return lines
