"""Table of the step time with faults: its distribution over seeds, and the faults of the slowest seed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from rich.console import Group
from rich.text import Text

from holmes_sim.distribution import SHARES, Troubled
from holmes_sim.printing.tables import grid
from sim.engine.faults import DrawnFaults
from sim.network.paths import LinkName
from sim.units import time_text

T = TypeVar("T")

NAMED_FAULTS = 4
"""Up to this many faulty devices or links are named one by one; above, their number is printed."""


def step_distribution(found: Troubled) -> Group:
    """Table of the distribution, and the faults of the slowest seed."""
    title = f"Step with faults, {len(found.seeds):,} seeds: {found.trouble}"
    table = grid(title, "name", "step", "times fault-free", "tokens/s")
    for name, seconds in found.summary().items():
        if round(len(found.seeds) * (1 - SHARES.get(name, 0.0)), 9) < 1:  # too few seeds for the quantile
            continue
        rate = found.plan.workload.tokens / seconds
        table.add_row(name.replace("_", "-"), time_text(seconds), f"{seconds / found.fault_free_s:.3f}", f"{rate:,.0f}")
    known = f"The mean is known to {found.mean_within:.1%} (95 %). " if len(found.seeds) > 1 else ""
    return Group(table, Text(f"{known}Seed {found.slowest} is the slowest: {drawn_text(found.drawn(found.slowest))}."))


def drawn_text(drawn: DrawnFaults) -> str:
    """The faults that a seed drew, as text."""
    parts = [_listed([f"{device} ({factor:g} times as slow)" for device, factor in drawn.slow], "slow devices")]
    parts += [_listed([f"{name} at {rate:.0%}" for name, rate in _ports(drawn.weak)], "degraded links")]
    parts += [_listed([f"{name} down from {_when(times)}" for name, times in _ports(drawn.down)], "flapping links")]
    parts += ["jitter" if drawn.jitter else ""]
    return "; ".join(filter(None, parts)) or "no faults"


def _listed(names: list[str], what: str) -> str:
    return ", ".join(names) if len(names) <= NAMED_FAULTS else f"{len(names)} {what}"


def _ports(links: Iterable[tuple[LinkName, T]]) -> list[tuple[str, T]]:
    """(name, fault) of each NIC (`ib/node0 infiniband 2`) and trunk (`ib-roce ethernet`), with both directions as one."""
    named: dict[str, T] = {}
    for (kind, a, b, nic, *index), what in links:
        if kind == "trunk":
            named.setdefault(f"{b}-{a} {nic}" if f"{b}-{a} {nic}" in named else f"{a}-{b} {nic}", what)
        else:
            named.setdefault(f"{a}/node{b} {nic} {index[0]}", what)
    return list(named.items())


def _when(times: tuple[tuple[float, float], ...]) -> str:
    return ", ".join(f"{begin:.3g} to {until:.3g} s" for begin, until in times)
