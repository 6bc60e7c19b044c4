"""Section: comparison of the plan with the plans of other strategies."""

from __future__ import annotations

from html import escape

from holmes_sim.intervals import step_range
from holmes_sim.printing import certificates, layouts
from holmes_sim.reporting.contents import Contents
from holmes_sim.reporting.markup import number, table
from holmes_sim.results import Compared, reason
from sim.plan.prediction import OBJECTIVES
from sim.units import time_text

NAME = "strategies"
TITLE = "Comparison with other strategies"
ORDER = 60


def html(contents: Contents) -> str:
    """Bars of samples/s, the table, and why some strategies have no plan; empty without other strategies."""
    if contents.compared is None:
        return ""
    found, proof = contents.compared, contents.plan.certificate
    objective = proof.objective if proof else "step-time"
    note = (
        f"Each other strategy planned the same topology and workload without pins; strategies that search had at most "
        f"{found.request.time_limit:g} s. The compute-only speed (pale bars) is the throughput of a layout if all "
        f"devices computed all the time, without communication, bubble and idle devices."
    )
    close = f"<p>{escape(found.closeness)}</p>" if found.closeness else ""
    return f"{_bars(found)}{_table(found, objective)}{close}<p>{note}</p>"


def _bars(found: Compared) -> str:
    """A bar of samples/s for each plan, on a pale bar that ends at its compute-only speed."""
    most = max(prediction.samples_per_s / prediction.upper_bound_fraction for _, _, prediction in found.ranked)
    mine = found.strategies[0]
    rows = []
    for name, _, prediction in found.ranked:
        rate, bound = prediction.samples_per_s / most, prediction.samples_per_s / prediction.upper_bound_fraction / most
        look = "rate mine" if name == mine else "rate"
        rows.append(
            f'<div><span class="who">{escape(name)}</span><div class="track">'
            f'<span class="bound" style="width:{100 * bound:.2f}%"></span>'
            f'<span class="{look}" style="width:{100 * rate:.2f}%"></span></div>'
            f'<span class="much">{prediction.samples_per_s:.4g} samples/s</span></div>'
        )
    return f'<div class="compared" aria-hidden="true">{"".join(rows)}</div>'


def _table(found: Compared, objective: str) -> str:
    """A row for each strategy; if the plan was made for cost or energy, with a column for that objective."""
    facts = {row.name: index for index, row in enumerate(found.rows)}
    best = found.ranked[0][2].step_s
    by = () if objective == "step-time" else (objective,)
    rows = []
    for name, plan, prediction in found.ranked:
        of, slower = f"comparison/rows/{facts[name]}", prediction.step_s / best - 1
        mark = "~ " if name in found.close else ""
        rows.append([
            f"{escape(name)}{' (this plan)' if name == found.strategies[0] else ''}",
            number(f"{of}/step_s", prediction.step_s, time_text(prediction.step_s)),
            escape(step_range(prediction.step_s, plan).text),
            number(f"{of}/samples_per_s", prediction.samples_per_s, f"{prediction.samples_per_s:.4g}"),
            mark + number(f"{of}/slower_than_best", slower, f"{slower:.1%}") if slower else "fastest",
            number(f"{of}/upper_bound_fraction", prediction.upper_bound_fraction, f"{prediction.upper_bound_fraction:.1%}"),
            *(certificates.amount(kind, getattr(prediction, OBJECTIVES[kind])) for kind in by),
            escape(layouts.short_layout(plan)),
        ])  # fmt: skip
    for row in found.without:
        rows.append([escape(row.name), *["–"] * (5 + len(by)), f"no plan: {escape(reason(row))}"])
    headers = ("strategy", "step", "80 % range", "samples/s", "slower by", "of compute-only speed", *by, "layout")
    return table(headers, rows, "Strategies, fastest first", words=("strategy", "layout"))
