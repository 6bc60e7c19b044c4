"""Tables of a whole training run: days, device hours, money and energy."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from holmes_sim.islands_whole_runs import IslandsWholeRun, Spent
from holmes_sim.printing.tables import grid
from holmes_sim.printing.trunk_sweeps import worth_text
from holmes_sim.whole_runs import WholeRun
from sim.results.goodput import DAY, HOUR
from sim.units import MILLI, duration_text, tokens_text


def whole_run(found: WholeRun) -> Group:
    """Table of the run, and a sentence that says what its days contain."""
    table = grid(f"Training on {tokens_text(found.tokens)} tokens", "name", "value")
    table.show_header = False
    name, (days, least, most) = _times(found.days)
    table.add_row(name, f"{days}, 80 % range {least} to {most}")
    table.add_row("device hours", f"{found.device_hours:,.0f}")
    table.add_row("money", "a price is missing" if found.usd is None else f"{found.usd:,.0f} USD")
    table.add_row("energy of the devices", _energy(found.mwh))
    return Group(
        Text(),
        table,
        Text(
            f"With a goodput of {found.goodput:.1%}: failures, {duration_text(found.checkpoint_s)} for a checkpoint and "
            f"{duration_text(found.restart_s)} for a restart (`holmes-sim goodput` takes your own)."
        ),
    )


def islands_whole_run(found: IslandsWholeRun) -> Group:
    """Table of the run of islands, by tokens and by effective tokens, and sentences that say what both contain."""
    effective = found.by_effective_tokens
    columns = ("by tokens", *(("by effective tokens",) if effective is not None else ()))
    table = grid(f"Training on {tokens_text(found.tokens)} tokens", "name", *columns)
    counts = [
        _cells(found.by_tokens, "80 % range"),
        *([_cells(effective, "range of the worth")] if effective is not None else []),
    ]
    for name in counts[0]:
        table.add_row(name, *(cells[name] for cells in counts))
    lines = ["by tokens: islands train these tokens; the range is that of inner steps, with exchanges as predicted."]
    if effective is not None and found.worth is not None:
        lines.append(
            "by effective tokens: islands train until their loss is that of synchronous training on these tokens; one of "
            f"theirs is worth {worth_text(found.worth, short=True)} of these."
            + (f" Outside the published range: {found.worth.extrapolated}." if found.worth.extrapolated else "")
        )
    else:
        lines.append("How many tokens reach the loss of synchronous training on these is unknown for this strategy.")
    lines.append(
        f"With a goodput of {found.goodput:.2%}: an island that fails does not stop the others, and restarts in "
        f"{duration_text(found.restart_s)} (`holmes-sim goodput` takes your own failures)."
    )
    return Group(Text(), table, *map(Text, lines))


def _cells(spent: Spent, what: str) -> dict[str, str]:
    """The cells of a count by the names of their rows."""
    name, (days, least, most) = _times(spent.days)
    return {
        "tokens trained": tokens_text(spent.tokens),
        name: f"{days}, {what} {least} to {most}" if least != most else days,
        "device hours": f"{spent.device_hours:,.0f}",
        "money": "a price is missing" if spent.usd is None else f"{spent.usd:,.0f} USD",
        "energy of the devices": _energy(spent.mwh),
    }


def _times(days: tuple[float, float, float]) -> tuple[str, tuple[str, str, str]]:
    """The unit, and three times in it: days, or hours if the first one is below a day."""
    unit, scale = ("hours", DAY / HOUR) if days[0] < 1 else ("days", 1.0)
    first, least, most = (f"{one * scale:,.3g}" for one in days)
    return unit, (first, least, most)


def _energy(mwh: float | None) -> str:
    """Energy in MWh, below one in kWh."""
    if mwh is None:
        return "a power is missing"
    return f"{mwh:,.4g} MWh" if mwh >= 1 else f"{mwh / MILLI:,.4g} kWh"
