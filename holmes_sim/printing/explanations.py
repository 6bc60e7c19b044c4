"""Where the seconds of a step go: by stage, along the critical path, and kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.printing.tables import STYLE, grid
from sim.results.explain import KINDS, Account, Explanation, Layer
from sim.units import MICRO, MILLI, Seconds, time_text

SHOWN_PASSAGES = 24
"""Passages of a critical path that are printed; of longer ones the begin and the end."""


def explained(found: Explanation) -> Group:
    """Where the seconds of a step go, stage by stage, and the chain of events that sets it."""
    mean = Account(-1, -1, 0, found.mean)
    on_path = Account(-1, -1, 0, tuple((kind, sum(a.of(kind) for a in found.path)) for kind in kinds(found.path)))
    step = time_text(float(f"{found.step_s:.4g}"))
    return Group(
        Text(),
        _accounts(f"Where a rank's {step} go", busiest(found), mean, "mean", found.step_s),
        Text("tp, pp, dp: communication that no compute hides. bubble: waiting for others."),
        Text(),
        _accounts(f"Critical path of {step}", found.path, on_path, "all", found.step_s),
        Text(longest(found)),
        Text(),
        _passages(found),
        *(part for layer in found.layers for part in (Text(), _kernels(layer))),
    )


def busiest(found: Explanation) -> tuple[Account, ...]:
    """Of every pipeline place the class of ranks that computes longest."""
    by_place: dict[int, Account] = {}
    for account in found.ranks:
        kept = by_place.get(account.pp_rank)
        if kept is None or _computes(account) > _computes(kept):
            by_place[account.pp_rank] = account
    return tuple(by_place.values())


def _computes(account: Account) -> Seconds:
    return sum(account.of(kind) for kind in ("forward", "backward", "recompute", "optimizer"))


def kinds(accounts: Iterable[Account]) -> tuple[str, ...]:
    """Kinds of seconds that any of the accounts has, in their usual order."""
    found = dict.fromkeys(kind for account in accounts for kind, _ in account.seconds)
    return (*(kind for kind in KINDS if kind in found), *(kind for kind in found if kind not in KINDS))


def _accounts(title: str, rows: tuple[Account, ...], total: Account, name: str, step: Seconds) -> Table:
    """A row for each stage, one for them together, one with its shares of the step; in one unit, so that they add up."""
    shown = kinds((*rows, total))
    table = grid(f"{title} (in {'s' if step >= 1 else 'ms'})", "stage", *shown)

    def cells(account: Account) -> list[str]:
        return [_alike(account.of(kind), step) if account.of(kind) else "-" for kind in shown]

    for row in rows:
        table.add_row(str(row.pp_rank), *cells(row))
    if len(rows) > 1:
        table.add_row(name, *cells(total), style=STYLE)
    table.add_row("share", *(f"{total.of(kind) / step:.1%}" for kind in shown))
    return table


def _alike(value: Seconds, step: Seconds) -> str:
    """Seconds in the unit that all times of a step are told in, without it."""
    return f"{value:.3f}" if step >= 1 else f"{value / MILLI:.2f}"


def longest(found: Explanation) -> str:
    """One line: the three longest parts of the critical path, and what it means."""
    parts = sorted(((s, a.pp_rank, kind) for a in found.path for kind, s in a.seconds), reverse=True)[:3]
    told = ", ".join(f"stage {place} {kind} {s / found.step_s:.0%}" for s, place, kind in parts if s >= 0.01 * found.step_s)
    return f"Most of it: {told}. A second saved elsewhere saves nothing."


def _kernels(layer: Layer) -> Group:
    """One layer kernel by kernel: seconds, share of the direction, and what binds."""
    title = f"One layer and microbatch on {layer.device} (in us)"
    table = grid(title, "name", "forward", "share", "bound by", "backward", "share", "bound by")
    table.columns[0].header = "kernel"
    totals = [sum(k.forward for k in layer.kernels), sum(k.backward for k in layer.kernels)]
    for kernel in layer.kernels:
        row = [kernel.name]
        for seconds, total, limit in (
            (kernel.forward, totals[0], kernel.forward_limit),
            (kernel.backward, totals[1], kernel.backward_limit),
        ):
            row += [f"{seconds / MICRO:.1f}", f"{seconds / total:.1%}", limit] if seconds else ["-", "-", ""]
        table.add_row(*row)
    table.add_row("all", f"{totals[0] / MICRO:.1f}", "", "", f"{totals[1] / MICRO:.1f}", "", "", style=STYLE)
    counted = f"{layer.forward / MICRO:.1f} and {layer.backward / MICRO:.1f}"
    waits = layer.forward > totals[0] * (1 + 1e-9) or layer.backward > totals[1] * (1 + 1e-9)
    note = f"With the host, which launches more slowly than this: {counted}." if waits else ""
    if layer.measured:
        note = f"The profile's {counted} count in place of these formulas, tensor-parallel collectives included."
    return Group(table, *([Text(note)] if note else []))


def _passages(found: Explanation) -> Table:
    step = found.step_s
    table = grid(f"Critical path in order (in {'s' if step >= 1 else 'ms'})", "from", "takes", "layout")
    table.columns[2].header = "what"
    rows = [(_alike(p.start, step), _alike(p.seconds, step), p.text) for p in found.chain]
    if len(rows) > SHOWN_PASSAGES:
        half = SHOWN_PASSAGES // 2
        left_out = len(rows) - 2 * half
        rows = [*rows[:half], ("...", "...", f"{left_out} more; --json has them all"), *rows[-half:]]
    for row in rows:
        table.add_row(*row)
    return table
