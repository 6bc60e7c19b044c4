"""Section: where the step time goes, for a rank of every stage and along the critical path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from holmes_sim.printing import explanations
from holmes_sim.reporting.contents import Contents
from holmes_sim.reporting.markup import bar, chip, details, number, table
from sim.results.explain import Account, Explanation, Layer
from sim.units import MICRO, MILLI, Seconds, time_text

NAME = "seconds"
TITLE = "Where the step time goes"
ORDER = 50


def html(contents: Contents) -> str:
    """The explanation of the step (`explained`)."""
    return explained(contents.explanation)


def explained(found: Explanation) -> str:
    """Stacked bars and tables of a rank of each stage and of the critical path, the path in words, and the kernels of a
    layer.
    """
    step = found.step_s
    facts = {account.rank: index for index, account in enumerate(found.ranks)}
    ranks = [(f"explanation/ranks/{facts[a.rank]}/seconds", a) for a in explanations.busiest(found)]
    path = [(f"explanation/critical_path/{index}/seconds", account) for index, account in enumerate(found.path)]
    kinds = explanations.kinds((*(a for _, a in ranks), *found.path))
    legend = "".join(f'<li><i class="k-{kind}"></i> {escape(kind)}</li>' for kind in kinds)
    mean = ("explanation/mean", Account(-1, -1, 0, found.mean))
    words = escape(explanations.longest(found))
    return (
        f"<h3>A rank of each stage</h3>{_bars(ranks, step)}<ul class='legend'>{legend}</ul>"
        f"{_table(ranks, 'Seconds of a rank, by stage', step, mean)}<p>{escape(explanations.legend(found.mean))} "
        f"Each row adds up to the step, "
        f"{time_text(float(f'{step:.4g}'))}.</p>"
        f"<h3>The critical path</h3>{_bars([('', _together(found.path))], step)}<p>{words}</p>"
        f"{_table(path, 'Seconds on the critical path, by stage', step)}{_chain(found)}"
        f"{''.join(_kernels(index, layer) for index, layer in enumerate(found.layers))}"
    )


def _stage(account: Account) -> str:
    """The stage of an account: a chip, or where pipelines are unlike its words."""
    return chip(account.pp_rank) if account.pipeline < 0 else escape(account.stage)


def _together(accounts: Iterable[Account]) -> Account:
    """The sum of several accounts."""
    every = tuple(accounts)
    return Account(-1, -1, 0, tuple((kind, sum(a.of(kind) for a in every)) for kind in explanations.kinds(every)))


def _bars(accounts: Sequence[tuple[str, Account]], step: Seconds) -> str:
    """A stacked bar for each account; the table below has the same numbers."""
    rows = []
    for _, account in accounts:
        parts = "".join(
            bar(kind, seconds / step, f"{kind} {seconds / step:.0%}") for kind, seconds in account.seconds if seconds > 0
        )
        label = _stage(account) if account.pp_rank >= 0 else ""
        rows.append(f"<div>{label}<div class='stacked'>{parts}</div></div>")
    return f'<div class="bars" aria-hidden="true">{"".join(rows)}</div>'


def _table(
    accounts: Sequence[tuple[str, Account]], caption: str, step: Seconds, mean: tuple[str, Account] | None = None
) -> str:
    """A table of accounts, one row each, in seconds or milliseconds: `step` says which."""
    kinds = explanations.kinds(account for _, account in accounts)
    rows = [[_stage(account), *_cells(of, account, kinds, step)] for of, account in accounts]
    if mean:
        rows.append(["mean", *_cells(*mean, kinds, step)])
    return table(("stage", *kinds), rows, caption, words=("stage",), last="mean" if mean else "")


def _cells(of: str, account: Account, kinds: Iterable[str], step: Seconds) -> list[str]:
    """The seconds of an account, one cell per kind."""
    known, unit = dict(account.seconds), "s" if step >= 1 else "ms"
    return [
        number(f"{of}/{kind}", known[kind], f"{explanations.cell(known[kind], step)} {unit}") if kind in known else "–"
        for kind in kinds
    ]


def _chain(found: Explanation) -> str:
    """The critical path action by action; long paths are shortened in the middle."""
    rows = [
        [
            number(f"explanation/chain/{index}/start_s", passage.start, time_text(passage.start)),
            number(f"explanation/chain/{index}/seconds", passage.seconds, time_text(passage.seconds)),
            escape(passage.text),
        ]
        for index, passage in enumerate(found.chain)
    ]
    shown = rows
    if len(rows) > explanations.SHOWN_PASSAGES:
        half = explanations.SHOWN_PASSAGES // 2
        shown = [*rows[:half], ["…", "…", f"{len(rows) - 2 * half} more"], *rows[-half:]]
    return details(
        "The critical path in order", table(("from", "takes", "what"), shown, "Critical path in order", words=("what",))
    )


def _kernels(index: int, layer: Layer) -> str:
    """A table of the kernels of one layer."""
    rows = []
    for at, kernel in enumerate(layer.kernels):
        of = f"explanation/layers/{index}/kernels/{at}"
        row = [escape(kernel.name)]
        for key, seconds, limit in (
            ("forward", kernel.forward, kernel.forward_limit),
            ("backward", kernel.backward, kernel.backward_limit),
        ):
            row += [number(f"{of}/{key}", seconds, f"{seconds / MICRO:.1f} us"), escape(limit)] if seconds else ["–", ""]
        rows.append(row)
    headers = ("kernel", "forward", "bound by", "backward", "bound by ")
    caption = f"One layer and microbatch on {layer.device}"
    note = ""
    if layer.measured:
        whole = f"{layer.forward / MILLI:.4g} and {layer.backward / MILLI:.4g} ms"
        note = f"<p>The profile's {whole} replace these formulas; they include tensor-parallel collectives.</p>"
    return details(caption, table(headers, rows, caption, words=("kernel", "bound by", "bound by ")) + note)
