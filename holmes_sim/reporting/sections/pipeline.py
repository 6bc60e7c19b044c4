"""The pipeline of the step on a canvas that can be zoomed and hovered."""

from __future__ import annotations

from html import escape

from holmes_sim.charts import gantt
from holmes_sim.reporting.spans import data, kinds, shown
from holmes_sim.reporting.study import Study
from sim.units import time_text

NAME = "pipeline"
TITLE = "Pipeline of a step"
ORDER = 40

BUTTONS = (
    ("in", "+", "Zoom in"),
    ("out", "−", "Zoom out"),
    ("left", "◀", "Earlier"),
    ("right", "▶", "Later"),
    ("all", "whole step", ""),
)
"""What a button does (a key of `actions` in pipeline.js), its sign, and its words where the sign has none."""


def html(study: Study) -> str:
    """Buttons, canvas, legend, what was folded, and the data that the canvas draws."""
    run = study.run
    rows, classes, ranks = shown(run), len(run.timeline.alike), study.plan.config.world_size
    buttons = "".join(
        f'<button type="button" data-do="{do}"{f""" aria-label="{words}" title="{words}" """ if words else ""}>{sign}</button>'
        for do, sign, words in BUTTONS
    )
    alt = (
        f"Timeline of a simulated step of {time_text(run.timeline.step_s)}: {len(rows)} rows, one for each class of ranks. "
        f"Arrow keys go from action to action and from row to row, plus and minus zoom, 0 shows the whole step."
    )
    drawn = kinds(run, rows)
    legend = "".join(
        f'<li><i class="g-{kind}" style="background:var(--g-{kind}-0)"></i> {escape(gantt.KINDS[kind][0])}</li>'
        for kind in drawn
    )
    folded = f"{ranks:,} ranks behave in {classes:,} ways: a row is drawn for each, and stands for all ranks that it names."
    if len(rows) < classes:
        folded += f" {len(rows)} of the {classes:,} are shown, some of every place, or of places that lie evenly."
    paler = " Later virtual stages of a rank are paler." if study.plan.config.vpp > 1 else ""
    return (
        f'<div class="pipeline"><div class="tools"><div role="group" aria-label="Zoom">{buttons}</div>'
        f'<output id="range"></output></div><div class="plot"><canvas id="timeline" tabindex="0" role="img" '
        f'aria-label="{escape(alt)}"></canvas><div id="tip" role="status" hidden></div></div>'
        f'<ul class="legend">{legend}</ul></div><p>{folded}{paler} Numbers on bars are microbatches. Drag to move, pinch or '
        f"Ctrl + wheel or double-click to zoom, hover or tap to read; arrow keys go from action to action.</p>"
        f'<noscript><p class="warnings">The timeline needs JavaScript; all else on this page does not.</p></noscript>'
        f'<script type="application/json" id="spans">{data(run, rows)}</script>'
    )
