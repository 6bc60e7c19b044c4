"""Tables that explain a step: seconds by stage, the critical path, and the kernels of a layer."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.printing.tables import STYLE, grid
from sim.results.explain import KINDS, Account, Explanation, Layer
from sim.units import MICRO, MILLI, Seconds, time_text

SHOWN_PASSAGES = 24
"""Maximum number of passages of a critical path that are printed; of a longer path the first and last 12 are printed."""

COMMUNICATION = {
    "tp": "tensor-parallel groups",
    "cp": "keys and values of context-parallel groups",
    "etp": "tensor-parallel groups of experts",
    "ep": "tokens to experts and back",
    "pp": "messages between stages",
    "dp": "gradients and weights of replicas",
    "edp": "gradients and weights of experts",
    "embedding": "gradient of the tied embedding",
}
"""Kind of exposed communication (`sim.results.explain.KINDS`) -> what is sent."""


def explained(found: Explanation) -> Group:
    """Tables of the seconds of a step by stage, its critical path, and the kernels of a layer."""
    mean = Account(-1, -1, 0, found.mean)
    on_path = Account(-1, -1, 0, tuple((kind, sum(a.of(kind) for a in found.path)) for kind in kinds(found.path)))
    step = time_text(float(f"{found.step_s:.4g}"))
    return Group(
        Text(),
        _accounts(f"Where a rank's {step} go", busiest(found), mean, "mean", found.step_s),
        Text(legend(found.mean)),
        Text(),
        _accounts(f"Critical path of {step}", found.path, on_path, "all", found.step_s),
        Text(longest(found)),
        Text(),
        _passages(found),
        *(part for layer in found.layers for part in (Text(), _kernels(layer))),
    )


def losses(found: Explanation) -> Group:
    """The seconds of a step by stage alone, and the longest parts of the critical path."""
    mean = Account(-1, -1, 0, found.mean)
    step = time_text(float(f"{found.step_s:.4g}"))
    table = _accounts(f"Where a rank's {step} go", busiest(found), mean, "mean", found.step_s)
    return Group(table, Text(f"{legend(found.mean)} {longest(found)}"))


def legend(mean: Iterable[tuple[str, Seconds]]) -> str:
    """What the kinds of communication are, and the bubble; of those that occur."""
    named = [f"{kind} ({words})" for kind, words in COMMUNICATION.items() if kind in dict(mean)]
    hidden = f"Communication that no compute hides: {', '.join(named)}. " if named else ""
    return f"{hidden}bubble: waiting for other ranks."


def busiest(found: Explanation) -> tuple[Account, ...]:
    """For each pipeline rank, the account of its ranks that compute longest."""
    by_stage: dict[str, Account] = {}
    for account in found.ranks:
        kept = by_stage.get(account.stage)
        if kept is None or _computes(account) > _computes(kept):
            by_stage[account.stage] = account
    return tuple(by_stage.values())


def _computes(account: Account) -> Seconds:
    return sum(account.of(kind) for kind in ("forward", "backward", "recompute", "optimizer"))


def kinds(accounts: Iterable[Account]) -> tuple[str, ...]:
    """Kinds of seconds that occur in the accounts, in display order."""
    found = dict.fromkeys(kind for account in accounts for kind, _ in account.seconds)
    return (*(kind for kind in KINDS if kind in found), *(kind for kind in found if kind not in KINDS))


def _accounts(title: str, rows: tuple[Account, ...], total: Account, name: str, step: Seconds) -> Table:
    """One row per stage, one for `total`, and one with its shares of the step. All times have one unit, so they add up."""
    shown = kinds((*rows, total))
    table = grid(f"{title} (in {'s' if step >= 1 else 'ms'})", "stage", *shown)

    def cells(account: Account) -> list[str]:
        return [cell(account.of(kind), step) if account.of(kind) else "-" for kind in shown]

    for row in rows:
        table.add_row(row.stage, *cells(row))
    if len(rows) > 1:
        table.add_row(name, *cells(total), style=STYLE)
    table.add_row("share", *(f"{total.of(kind) / step:.1%}" for kind in shown))
    return table


def cell(value: Seconds, step: Seconds) -> str:
    """Seconds as a number in the unit of the table: seconds if the step takes at least 1 s, else milliseconds."""
    return f"{value:.3f}" if step >= 1 else f"{value / MILLI:.2f}"


def longest(found: Explanation) -> str:
    """One line with the three longest parts of the critical path, and what they mean."""
    every = ((s, a.pipeline, a.pp_rank, kind) for a in found.path for kind, s in a.seconds)
    parts = sorted(every, reverse=True)[:3]
    named = ((s, f"pipeline {one}: {stage}" if one >= 0 else f"stage {stage}", kind) for s, one, stage, kind in parts)
    shown = ", ".join(f"{stage} {kind} {s / found.step_s:.0%}" for s, stage, kind in named if s >= 0.01 * found.step_s)
    return f"Longest parts: {shown}. Time saved off the critical path does not shorten the step."


def _kernels(layer: Layer) -> Group:
    """Table of the kernels of one layer: time, share of the forward or backward, and what limits the kernel."""
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
    note = f"The host launches kernels more slowly than the device runs them; with launches: {counted}." if waits else ""
    if layer.measured:
        note = f"The simulation uses the profiled {counted}, with tensor-parallel collectives, in place of these formulas."
    return Group(table, *([Text(note)] if note else []))


def _passages(found: Explanation) -> Table:
    """Table of the passages of the critical path in order."""
    step = found.step_s
    table = grid(f"Critical path in order (in {'s' if step >= 1 else 'ms'})", "from", "takes", "layout")
    table.columns[2].header = "what"
    rows = [(cell(p.start, step), cell(p.seconds, step), p.text) for p in found.chain]
    if len(rows) > SHOWN_PASSAGES:
        half = SHOWN_PASSAGES // 2
        left_out = len(rows) - 2 * half
        rows = [*rows[:half], ("...", "...", f"{left_out} more; --json prints all"), *rows[-half:]]
    for row in rows:
        table.add_row(*row)
    return table
