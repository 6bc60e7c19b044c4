"""Section: outer periods in steady state as a chart: what each island does, and when an exchange is on the network."""

from __future__ import annotations

import math
from html import escape

from holmes_sim.charts.outer_period import SHOWN, WORDS, drawn, drawn_as, kinds_of, steps_text
from holmes_sim.printing.islands import inner_steps, is_waited_for
from holmes_sim.reporting.islands_contents import IslandsContents
from holmes_sim.reporting.markup import island_chip
from planner.islands.node_ranges import island_text
from sim.islands.outer_timeline import NETWORK, OuterSpan
from sim.units import Seconds, time_text

NAME = "outer-period"
TITLE = "Outer period"
ORDER = 30
TICKS = 5
"""Number of numbered times on the axis, about."""
LAST_TICK = 0.93
"""Share of the axis after which no time is written, since it would not fit. A guess."""


def html(contents: IslandsContents) -> str:
    """A row for each island and one for the network between them, the axis, and a legend."""
    plan = contents.plan
    whole, spans, ends = drawn(contents.run.timeline)
    lanes = []
    for island in (*range(len(plan.islands)), *([NETWORK] if plan.sync.exchanges else [])):
        own = "".join(_bar(span, whole) for span in spans if span.island == island)
        own += "".join(f'<i class="end" style="left:{100 * end / whole:.3f}%"></i>' for index, end in ends if index == island)
        name = f"{island_chip(island)} {escape(island_text(plan.islands[island]))}" if island != NETWORK else "between islands"
        lanes.append(f'<div><span class="who">{name}</span><div class="lane">{own}</div></div>')
    ticks = "".join(f'<span style="left:{100 * tick / whole:.3f}%">{time_text(tick)}</span>' for tick in _ticks(whole))
    lanes.append(f'<div><span></span><div class="ticks">{ticks}</div></div>')
    legend = "".join(f'<li><i class="o-{kind}"></i> {escape(WORDS[kind])}</li>' for kind in (*kinds_of(spans), "end"))
    note = (
        f"The first {SHOWN} outer periods ({inner_steps(plan)} each) after the first one, in steady state. Waits for an "
        "exchange include the outer update. Point at a bar for its times."
    )
    return (
        f'<div class="periods" role="img" aria-label="{escape(_words(contents))}">{"".join(lanes)}</div>'
        f'<ul class="legend">{legend}</ul><p>{note}</p>'
    )


def _bar(span: OuterSpan, whole: Seconds) -> str:
    """A span as a bar; its text is hidden if it does not fit."""
    kind, seconds = drawn_as(span), span.end - span.start
    text = steps_text(span.steps) if span.steps else ""
    title = f"{text or WORDS[kind]}: {time_text(span.start)} to {time_text(span.end)} ({time_text(seconds)})"
    place = f"left:{100 * span.start / whole:.3f}%;width:{100 * seconds / whole:.3f}%"
    return f'<span class="part o-{kind}" style="{place}" title="{escape(title)}"><span>{escape(text)}</span></span>'


def _ticks(whole: Seconds) -> list[Seconds]:
    """Round times from 0 on: multiples of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(whole / TICKS))
    step = next(power * times for times in (1, 2, 5, 10) if power * times * TICKS >= whole)
    return [index * step for index in range(TICKS + 1) if index * step < LAST_TICK * whole]


def _words(contents: IslandsContents) -> str:
    """A text alternative of the chart."""
    plan, numbers = contents.plan, contents.run.prediction
    each = [
        f"island {index} ({island_text(island)}) takes {inner_steps(plan)} of {time_text(numbers.inner_step_s[index])}"
        for index, island in enumerate(plan.islands)
    ]
    waits = f"wait {time_text(numbers.exposed_s)}" if is_waited_for(numbers) else "never wait"
    exchanges = f"exchanges take {time_text(numbers.exchange_s)} on the network, and islands {waits} for them"
    return f"Chart of outer periods of {time_text(numbers.period_s)}: {', '.join(each)}; {exchanges}."
