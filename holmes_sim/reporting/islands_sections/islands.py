"""Section: a table of the islands."""

from __future__ import annotations

from html import escape

from holmes_sim.printing import islands as words
from holmes_sim.reporting.islands_contents import IslandsContents, fullest_stage
from holmes_sim.reporting.markup import island_chip, number, table
from planner.islands.node_ranges import island_text
from sim.islands.prediction import is_on_host, outer_state_bytes
from sim.units import GIBI, time_text

NAME = "islands"
TITLE = "Islands"
ORDER = 20
NEGLIGIBLE = 1e-6
"""Share of an inner step below which a wait is rounding. A guess."""


def html(contents: IslandsContents) -> str:
    """A row for each island: devices, batch, layout, inner step, waits, memory and outer state."""
    rows = [[*_devices(contents, index), *_prediction(contents, index)] for index in range(len(contents.plan.islands))]
    headers = ("island", "cluster", "devices", "batch", "layout", "inner step", "waits", "peak memory", "outer state")
    where = "host" if is_on_host(contents.plan) else "device"
    note = (
        "Waits: seconds of an outer period in which an island waits for slower ones. Peak memory: that of the fullest stage. "
        f"Outer state: bytes in memory of the {where}, of the rank with most of them."
    )
    return table(headers, rows, "Islands", words=("island", "cluster", "devices")) + f"<p>{note}</p>"


def _devices(contents: IslandsContents, index: int) -> list[str]:
    """Cells with what an island is: clusters, devices, batch, layout."""
    island = contents.plan.islands[index]
    batch = island.workload.global_batch_size
    return [
        f'<a href="#island-{index}" aria-label="Stages of island {index}">{island_chip(index)}</a>',
        escape(island_text(island)),
        f"{island.config.world_size:,} {escape(', '.join(spec.name for spec in island.specs))}",
        number(f"plan/islands/{index}/workload/global_batch_size", batch, f"{batch:,}"),
        escape(words.layout(island)),
    ]


def _prediction(contents: IslandsContents, index: int) -> list[str]:
    """Cells with what an island takes: inner step, waits, memory, outer state."""
    predicted, state = contents.prediction, outer_state_bytes(contents.plan)[index]
    inner, waits = predicted.inner_step_s[index], predicted.waiting_s[index]
    share, pp_rank = fullest_stage(contents.steps[index])
    meter = f'<meter low="0.8" high="0.9" optimum="0" value="{share:.4f}" aria-label="share of memory"></meter> '
    return [
        number(f"plan/prediction/inner_step_s/{index}", inner, time_text(inner)),
        number(f"plan/prediction/waiting_s/{index}", waits, time_text(waits)) if waits > NEGLIGIBLE * inner else "–",
        meter + number(f"islands/{index}/memory/{pp_rank}/share", share, f"{share:.0%}"),
        number(f"simulation/outer_state/bytes/{index}", state, f"{state / GIBI:.3g} GiB") if state else "–",
    ]
