"""A plan with attention and experts on two sets of ranks as one HTML page: numbers, devices, both sets, a step as a chart."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from holmes_sim.disaggregated import SimulatedDisaggregated
from holmes_sim.idle import idle_label
from holmes_sim.printing import disaggregated as words
from holmes_sim.reporting.colours import islands_css
from holmes_sim.reporting.drawing import Drawing, figure
from holmes_sim.reporting.markup import island_chip, number, prose, table
from holmes_sim.reporting.page import Page, assembled, made_by, tiles
from sim.engine.timeline import Span
from sim.formats import disaggregatedfile
from sim.formats.disaggregatedfile import SETS
from sim.units import GIBI, Seconds, time_text

BARS = 400
"""Most bars of a row of the chart; of a longer step its begin is drawn. A guess: more would be narrower than a pixel."""
ROWS = (("attention", "compute", 0), ("experts", "compute", 1), ("dispatches", "send", 0), ("combines", "return", 0))
"""Name, lane and set of ranks of each row of the chart. Exchanges are on both sets at once, and drawn once."""
LOOKS = {
    "F": ("steps", "forward"), "B": ("end", "backward"), "optimizer": ("wait", "gradients and optimizer"),
    "send": ("network", "dispatch"), "return": ("exchange", "combine"),
}  # fmt: skip
"""Kind of a bar -> colour of the page, and what it is."""
LAUNCHED = (
    "By `holmes-sim run` and torchrun ([how](docs/run.md)), or in the lab; no framework runs it. docs/attention-and-experts.md "
    "says what is modelled."
)


def two_sets_page(run: SimulatedDisaggregated) -> Page:
    """The whole page. Equal plans give equal bytes."""
    plan = run.plan
    parts = {
        "title": escape(f"{plan.workload.model.name} on {plan.topology.name}"),
        "style": islands_css(1, len(SETS)),
        "heading": escape(words.heading(plan)),
        "layout": escape(str(plan.stage)),
        "tiles": tiles(_tiles(run)),
        "lead": _lead(run),
        "foot": escape(f"Plan {disaggregatedfile.digest(plan)} by {made_by(plan.made_by)}"),
        "script": "",
    }
    sections = (
        ("placement", "Topology and sets of ranks", _placement(run)),
        ("sets", "Sets of ranks", _sets(run)),
        ("step", "A step", _step(run)),
    )
    return assembled(parts, sections)


def _tiles(run: SimulatedDisaggregated) -> Iterator[tuple[str, str]]:
    numbers = run.prediction
    yield "step", number("report/step_s", numbers.step_s, time_text(numbers.step_s))
    yield "tokens/s", number("report/tokens_per_s", numbers.tokens_per_s, f"{numbers.tokens_per_s:,.0f}")
    yield "MFU", number("report/mfu", numbers.mfu, f"{numbers.mfu:.1%}")
    for name, seconds in zip(("dispatches", "combines"), numbers.exchange_s, strict=True):
        yield f"{name}, one after the other", f"<b>{time_text(seconds)}</b>"


def _lead(run: SimulatedDisaggregated) -> str:
    """The bound, and what launches the plan."""
    lines = {"Certificate": words.bound(run.plan, run.prediction.step_s), "Launched": LAUNCHED}
    rows = "".join(f"<div><dt>{name}</dt><dd>{prose(text)}</dd></div>" for name, text in lines.items())
    return f'<dl class="lead">{rows}</dl>'


def _placement(run: SimulatedDisaggregated) -> str:
    """Clusters and trunks, with a legend of both sets."""
    plan = run.plan
    drawing = Drawing(plan.fleet, plan)
    items = [f"<li>{island_chip(index)} {name}</li>" for index, name in enumerate(SETS)]
    if idle := plan.fleet.devices - len(plan.placement):
        items.append(f'<li><span class="chip" style="background:var(--idle)">&nbsp;</span> {idle_label(idle)}</li>')
    return figure(drawing) + f'<ul class="legend" aria-label="Sets of ranks">{"".join(items)}</ul>'


def _sets(run: SimulatedDisaggregated) -> str:
    """A row for each set: devices, experts, seconds and memory of a rank."""
    rows, numbers = [], run.prediction
    for index, name in enumerate(SETS):
        peak, room = numbers.peak_memory_bytes[index], run.room[index]
        meter = f'<meter low="0.8" high="0.9" optimum="0" value="{peak / room:.4f}" aria-label="share of memory"></meter> '
        rows.append([
            f"{island_chip(index)} {name}",
            *map(escape, words.devices(run, index)),
            number(f"report/compute_s/{index}", numbers.compute_s[index], time_text(numbers.compute_s[index])),
            number(f"report/closing_s/{index}", numbers.closing_s[index], time_text(numbers.closing_s[index])),
            meter + number(f"report/peak_memory_bytes/{index}", peak, f"{peak / GIBI:.3g} GiB"),
        ])  # fmt: skip
    headers = ("set", "cluster", "device", "ranks", "experts a layer", "compute", "gradients and optimizer", "peak memory")
    return table(headers, rows, "Sets of ranks", words=("set", "cluster", "device"))


def _step(run: SimulatedDisaggregated) -> str:
    """A row for the compute of each set and for each kind of exchange; of a long step, its begin."""
    spans = run.timeline.spans
    rows = [(name, [s for s in spans if s.lane == lane and s.stage == own]) for name, lane, own in ROWS]
    ends = [own[BARS - 1].end for _, own in rows if len(own) > BARS]
    whole = min([*ends, max(span.end for span in spans)])
    lanes = "".join(
        f'<div><span class="who">{name}</span><div class="lane">{"".join(_bar(one, whole) for one in own if one.end <= whole)}'
        "</div></div>"
        for name, own in rows
    )
    legend = "".join(f'<li><i class="o-{look}"></i> {text}</li>' for look, text in LOOKS.values())
    what = f"The first {time_text(whole)} of the step" if whole < run.prediction.step_s else "The whole step"
    note = f"{what}, of one rank of each set. Point at a bar for its layer, microbatch and times."
    label = f"Chart of a step of {time_text(run.prediction.step_s)}: compute of both sets of ranks and their exchanges."
    return f'<div class="periods" role="img" aria-label="{label}">{lanes}</div><ul class="legend">{legend}</ul><p>{note}</p>'


def _bar(span: Span, whole: Seconds) -> str:
    look, _ = LOOKS[span.lane if span.lane in LOOKS else span.kind]
    title = f"{span.name}: {time_text(span.start)} to {time_text(span.end)} ({time_text(span.seconds)})"
    place = f"left:{100 * span.start / whole:.3f}%;width:{100 * span.seconds / whole:.3f}%"
    return f'<span class="part o-{look}" style="{place}" title="{escape(title)}"></span>'
