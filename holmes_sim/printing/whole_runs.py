"""Table of a whole training run: days, device hours, money and energy."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from holmes_sim.printing.tables import grid
from holmes_sim.whole_runs import WholeRun
from sim.units import duration_text, tokens_text


def whole_run(found: WholeRun) -> Group:
    """Table of the run, and a sentence that says what its days contain."""
    table = grid(f"Training on {tokens_text(found.tokens)} tokens", "name", "value")
    table.show_header = False
    days, least, most = found.days
    table.add_row("days", f"{days:,.3g}, 80 % range {least:,.3g} to {most:,.3g}")
    table.add_row("device hours", f"{found.device_hours:,.0f}")
    table.add_row("money", "a price is missing" if found.usd is None else f"{found.usd:,.0f} USD")
    table.add_row("energy of the devices", "a power is missing" if found.mwh is None else f"{found.mwh:,.4g} MWh")
    return Group(
        Text(),
        table,
        Text(
            f"With a goodput of {found.goodput:.1%}: failures, {duration_text(found.checkpoint_s)} for a checkpoint and "
            f"{duration_text(found.restart_s)} for a restart (`holmes-sim goodput` takes your own)."
        ),
    )
