"""Section: the timeline of the step on a canvas with zoom and tooltips."""

from __future__ import annotations

from html import escape

from holmes_sim.charts import gantt
from holmes_sim.reporting.contents import Contents
from holmes_sim.reporting.spans import drawn_kinds, rows_to_draw, spans_json
from holmes_sim.results import Simulated
from holmes_sim.unlike_pipelines import SimulatedPipelines
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
"""(key of `actions` in pipeline.js, sign, label if the sign is not a word) of each button."""


def html(contents: Contents) -> str:
    """The timeline of the simulated step (`timeline`)."""
    return timeline(contents.run)


def timeline(run: Simulated | SimulatedPipelines) -> str:
    """Buttons, canvas, legend, a note on symmetry reduction, and the data of the canvas."""
    rows, classes, ranks = rows_to_draw(run), len(run.timeline.alike), len(run.plan.placement)
    buttons = "".join(
        f'<button type="button" data-do="{do}"{f""" aria-label="{words}" title="{words}" """ if words else ""}>{sign}</button>'
        for do, sign, words in BUTTONS
    )
    alt = (
        f"Timeline of a simulated step of {time_text(run.timeline.step_s)}: {len(rows)} rows, one for each class of ranks. "
        f"Arrow keys move between actions and rows, plus and minus zoom, 0 shows the whole step."
    )
    drawn = drawn_kinds(run, rows)
    legend = "".join(
        f'<li><i class="g-{kind}" style="background:var(--g-{kind}-0)"></i> {escape(gantt.KINDS[kind][0])}</li>'
        for kind in drawn
    )
    folded = f"{ranks:,} ranks form {classes:,} classes of equivalent ranks; each row shows one class and names its ranks."
    if len(rows) < classes:
        folded += f" {len(rows)} of {classes:,} classes are shown: some of every stage, or of evenly spaced stages."
    virtual = isinstance(run, Simulated) and run.plan.config.vpp > 1
    paler = " Later virtual stages of a rank are paler." if virtual else ""
    return (
        f'<div class="pipeline"><div class="tools"><div role="group" aria-label="Zoom">{buttons}</div>'
        f'<output id="range"></output></div><div class="plot"><canvas id="timeline" tabindex="0" role="img" '
        f'aria-label="{escape(alt)}"></canvas><div id="tip" role="status" hidden></div></div>'
        f'<ul class="legend">{legend}</ul></div><p>{folded}{paler} Numbers on bars are microbatches. Drag to move; pinch, '
        f"Ctrl + wheel or double-click to zoom; hover or tap for details; arrow keys select actions.</p>"
        f'<noscript><p class="warnings">The timeline needs JavaScript; the rest of this page does not.</p></noscript>'
        f'<script type="application/json" id="spans">{spans_json(run, rows)}</script>'
    )
