"""Tables of a run with failures: goodput, where the time goes, and how often to save a checkpoint."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from holmes_sim.month import Month
from holmes_sim.printing.tables import grid
from sim.units import duration_text, tokens_text


def goodput(found: Month) -> Group:
    """Tables of the time by kind and of checkpoint intervals, and a sentence on the failures."""
    time = grid(f"{found.days:g} days, {len(found.seeds):,} runs", "name", "of the time", "hours")
    for name, share in found.shares.items():
        time.add_row(name, f"{share:.2%}", f"{share * found.days * 24:,.1f}")
    choices = {"used": found.run.interval, "Young 1974": found.young_s, "Daly 2006": found.daly_s}
    intervals = grid("Interval between checkpoints", "name", "interval", "steps", "goodput (closed form)")
    for name, interval in choices.items():
        steps = interval / found.step_s
        intervals.add_row(name, duration_text(interval), f"{steps:,.1f}", f"{found.at(interval):.2%}")
    failures = ", ".join(
        f"{number:.3g} of a {kind} on average ({found.run.counts[kind]:,}, MTBF {duration_text(found.run.mtbf[kind])} each)"
        for kind, number in found.failures.items()
    )
    return Group(
        time,
        Text(f"Goodput {min(found.goodputs):.2%} to {max(found.goodputs):.2%}; {tokens_text(found.tokens)} useful tokens."),
        Text(f"Failures: {failures}; one every {duration_text(found.run.between)}."),
        Text(),
        intervals,
    )
