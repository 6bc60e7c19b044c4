"""Table of exact training and sync strategies by the bandwidth of the links between islands, and their crossings."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from holmes_sim.printing.tables import STYLE, grid
from holmes_sim.trunks import TrunkBandwidths
from planner.islands.node_ranges import partition_text
from planner.islands.trunk_sweep import Crossing
from sim.islands.token_worth import TokenWorth
from sim.network import tcp
from sim.sync import PRICES
from sim.units import rate_text


def worth_text(worth: TokenWorth | None, short: bool = False) -> str:
    """What a token is worth: `1`, `0.86 (0.76 to 0.97)`, or `unknown`."""
    if worth is None:
        return "unknown"
    if worth.low == worth.high:
        return f"{worth.expected:.3g}"
    spread = f"{worth.low:.2f} to {worth.high:.2f}"
    return f"{worth.expected:.2f} ({spread})" if short else f"{worth.expected:.2f} ({spread}) tokens of synchronous training"


def trunk_bandwidths(found: TrunkBandwidths) -> Group:
    """Tokens per second by bandwidth, the crossings, and what each strategy gives up."""
    sweep = found.sweep
    islands = partition_text(sweep.partition)
    title = Text(f"{sweep.topology.name}: {found.model}, by the bandwidth between islands {islands}", style=STYLE)
    table = grid("Tokens/s", "name", *(rate_text(bandwidth) for bandwidth in sweep.bandwidths), "a token is worth")
    exact = [row.tokens_per_s for row in sweep.exact]
    table.add_row("exact", *(f"{value:,.0f}" for value in exact), "1")
    for sync, rows in sweep.rows.items():
        cells = ["-" if row is None else f"{row.tokens_per_s:,.0f}" for row in rows]
        worth = next((row.worth for row in rows if row is not None), None)
        table.add_row(sync.short, *cells, worth_text(worth, short=True))
    used = [str(sum(any(name in row.islands[0] for name in names) for names in sweep.partition)) for row in sweep.exact]
    table.add_row("islands that the exact plan uses", *used, "")
    lines = [_crossing(crossing) for crossing in sweep.crossings]
    lines += ["No crossing in this range."] if not lines else []
    if any(row is None for rows in sweep.rows.values() for row in rows):
        lines.append("-: no room for the strategy's state in memory, or no NICs and links over which the islands can exchange.")
    lines += [
        f"TCP between {' and '.join(trunk.between)} carries at most {rate_text(tcp.rank_rate((trunk,)) or 0.0)} for each rank, "
        "whatever the bandwidth."
        for trunk in sweep.topology.fleet.trunks
        if tcp.is_limited(trunk)
    ]
    for price in dict.fromkeys(sync.price for sync in sweep.rows if sync.price != "exact"):
        names = "; ".join(sync.short for sync in sweep.rows if sync.price == price)
        lines.append(f"These give up something ({names}): {PRICES[price]}.")
    return Group(title, Text(), table, Text(), *map(Text, lines))


def _crossing(crossing: Crossing) -> str:
    side = "above" if crossing.gains else "below"
    return (
        f"{crossing.sync.short} gives more tokens/s than exact training {side} {rate_text(float(f'{crossing.bandwidth:.4g}'))}."
    )
