"""Chart of outer periods: what each island does over time, and when an exchange is waited for."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from holmes_sim.charts.style import BLUE, DARK, DPI, GREEN, GREY, ORANGE, SKY, WIDTH, Picture
from holmes_sim.islands import SimulatedIslands
from sim.islands.outer_period import NETWORK
from sim.plan.islands import IslandsPlan
from sim.units import time_text

COLOURS = {"inner steps": SKY, "exchange": ORANGE, "wait": GREY}
"""Kind of span -> colour; "exchange" is the time in which an island waits for one, with the outer update."""
WORDS = {"inner steps": "inner steps", "exchange": "waits for an exchange", "wait": "waits for slower islands"}
SHOWN = 2
"""Number of outer periods that are drawn."""


def outer_periods(run: SimulatedIslands) -> Figure:
    """The first outer periods of all islands, one row each, from the end of the first one (the steady state)."""
    plan, timeline = run.plan, run.timeline
    figure = Picture(figsize=(WIDTH, 2.3 + 0.55 * len(plan.islands)), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    first = min(row[0] for row in timeline.ends if row)
    last = max(row[min(SHOWN, len(row) - 1)] for row in timeline.ends if row)
    labels, rows = [], [*range(len(plan.islands)), NETWORK]
    for index, island in enumerate(rows):
        labels.append(_label(plan, island))
        for span in timeline.spans:
            if span.island == island and span.end > first and span.start < last:
                start, end = max(span.start, first), min(span.end, last)
                colour = GREEN if island == NETWORK else COLOURS[span.kind]
                axes.barh(index, end - start, left=start - first, height=0.62, color=colour, edgecolor="white", linewidth=0.5)
                if span.steps and (end - start) > 0.04 * (last - first):
                    noun = "steps" if span.steps > 1 else "step"
                    text = f"{span.steps} {noun}"
                    axes.text((start + end) / 2 - first, index, text, ha="center", va="center", fontsize=8, color=DARK)
        for end in timeline.ends[island] if island != NETWORK else ():
            if first <= end <= last:
                axes.plot([end - first] * 2, [index - 0.42, index + 0.42], color=BLUE, linewidth=1.5)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set(xlabel="seconds", xlim=(0, last - first))
    axes.spines[["top", "right"]].set_visible(False)
    own = [span for span in timeline.spans if span.island != NETWORK and span.end > first]
    kinds = [kind for kind in COLOURS if any(span.kind == kind for span in own)]
    handles = [Patch(color=COLOURS[kind], label=WORDS[kind]) for kind in kinds]
    handles += [Patch(color=GREEN, label="exchange on the network")] if plan.sync.exchanges else []
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=len(handles), frameon=False)
    period = time_text(run.prediction.period_s)
    figure.suptitle(
        f"{plan.topology.name} · {plan.workload.model.name} · sync {plan.sync} · outer period {period} · "
        f"{run.prediction.tokens_per_s:,.0f} tokens/s",
        fontsize=11,
    )
    return figure


def _label(plan: IslandsPlan, island: int) -> str:
    """Label of the row of an island, or of the network between islands."""
    if island == NETWORK:
        return "between\nislands"
    clusters = " + ".join(dict.fromkeys(device.cluster for device in plan.islands[island].placement))
    return f"{clusters}\nbatch {plan.islands[island].workload.global_batch_size}"
