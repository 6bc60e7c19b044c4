"""A step in trouble: the distribution of its seconds, and what made the slowest one slow."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from holmes_sim.distribution import Troubled
from holmes_sim.printing.tables import grid
from sim.trouble import Drawn
from sim.units import time_text

NAMED = 4
"""Devices and links of a draw that are named; of more, how many there are."""


def troubled(found: Troubled) -> Group:
    """Table of the distribution, and the draw of the slowest seed."""
    table = grid(f"Step in trouble, {len(found.seeds):,} seeds: {found.trouble}", "name", "step", "of plain", "tokens/s")
    for name, seconds in found.summary().items():
        rate = found.plan.workload.tokens / seconds
        table.add_row(name, time_text(seconds), f"{seconds / found.plain_s:.3f}", f"{rate:,.0f}")
    return Group(table, Text(f"Seed {found.slowest} is the slowest: {said(found.drawn(found.slowest))}."))


def said(drawn: Drawn) -> str:
    """What a seed drew, in words."""
    ports = [(link, leaves) for link, leaves in drawn.weak if link[-1] == "out"]
    down = [(link, times) for link, times in drawn.down if link[-1] == "out"]
    parts = [_listed([f"{device} ({factor:g} times as slow)" for device, factor in drawn.slow], "slow devices")]
    parts += [_listed([f"{_name(link)} at {rate:.0%}" for link, rate in ports], "degraded links")]
    parts += [_listed([f"{_name(link)} down from {_when(times)}" for link, times in down], "flapping links")]
    parts += ["jitter" if drawn.jitter else ""]
    return "; ".join(filter(None, parts)) or "no trouble"


def _listed(names: list[str], what: str) -> str:
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} {what}"


def _name(link: tuple[str | int, ...]) -> str:
    """`ib/node0 infiniband 2`, or `ib-roce ethernet` of a trunk."""
    if link[0] == "trunk":
        return f"{link[1]}-{link[2]} {link[3]}"
    return f"{link[1]}/node{link[2]} {link[3]} {link[4]}"


def _when(times: tuple[tuple[float, float], ...]) -> str:
    return ", ".join(f"{begin:.3g} to {until:.3g} s" for begin, until in times)
