"""Section: tables of the pipeline stages and of the communication groups."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from holmes_sim.message_cuts import message_cuts
from holmes_sim.printing import plans
from holmes_sim.reporting.contents import Contents
from holmes_sim.reporting.markup import chip, number, table
from sim.kernels import memory
from sim.plan.plan import Plan
from sim.results.report import PipelineRankReport
from sim.units import GIBI, Bytes, time_text

NAME = "stages"
TITLE = "Stages and groups"
ORDER = 30


def html(contents: Contents) -> str:
    """Both tables."""
    virtual = "" if contents.plan.config.vpp == 1 else " Layers are those of its virtual stages, in the order of the pipeline."
    rows = stages(contents.plan, contents.run.pipeline_ranks, contents.prediction.peak_memory_bytes)
    return (
        f"{rows}<p>Times are those of a rank of the slowest class of "
        f"each stage: compute, exposed (waiting for the network), bubble (waiting for other ranks).{virtual}</p>"
        f"{_groups(contents.plan)}{cuts(contents.plan)}"
    )


def cuts(plan: Plan) -> str:
    """How messages pass between stages of unlike degrees; empty where there are none."""
    return "".join(f"<p>{escape(line)}</p>" for line in message_cuts(plan))


def stages(
    plan: Plan, ranks: Sequence[PipelineRankReport], peaks: Sequence[Bytes], at: str = "", caption: str = "Stages"
) -> str:
    """A row for each pipeline rank: location, layers, memory and times.

    `ranks`: the times of each, `peaks` the memory; `at`: start of the paths of its numbers."""
    limits, unlike = memory.limits(plan), plans.unlike_options(plan.config)
    rows = []
    for row in ranks:
        pp_rank = row.pp_rank
        clusters, nodes, devices, _ = plans.location(plan, pp_rank)
        layers = "+".join(
            number(f"{at}layers/{s}", plan.stages[s].layers, str(plan.stages[s].layers)) for s in plan.stages_of(pp_rank)
        )
        own = [value_of(pp_rank) for value_of in unlike.values()]
        again = [plans.recomputed(plan, pp_rank)] if plan.config.recompute_layers else []
        share = peaks[pp_rank] / limits[pp_rank]
        full = f'<meter low="0.8" high="0.9" optimum="0" value="{share:.4f}" aria-label="share of memory"></meter> '
        seconds = [
            number(f"{at}pipeline_ranks/{pp_rank}/{key}", value, time_text(float(f"{value:.3g}")))
            for key, value in (("compute", row.compute), ("exposed", row.exposed), ("bubble", row.bubble))
        ]
        rows.append([
            chip(pp_rank), escape(clusters), nodes, escape(devices), *own, layers, *again,
            number(f"{at}plan/prediction/peak_memory_bytes/{pp_rank}", peaks[pp_rank], f"{peaks[pp_rank] / GIBI:.3g} GiB"),
            full + number(f"{at}memory/{pp_rank}/share", share, f"{share:.0%}"), *seconds,
        ])  # fmt: skip
    some = ("recomputed",) if plan.config.recompute_layers else ()
    headers = (
        "stage", "cluster", "nodes", "device", *unlike, "layers", *some, "peak memory", "of the device", "compute",
        "exposed", "bubble",
    )  # fmt: skip
    return table(headers, rows, caption, words=("stage", "cluster", "device", "on hosts"))


def _groups(plan: Plan) -> str:
    """A row for each kind of equal groups."""
    rows = [
        [escape(kind), f"{many:,}", escape(ranks), *map(escape, rest)]
        for (kind, ranks, *rest), many in plans.group_counts(plan).items()
    ]
    headers = ("group", "how many", "ranks each", "NIC", "transport", "collective", "clusters")
    return table(headers, rows, "Groups", words=("group", "NIC", "transport", "collective", "clusters")) if rows else ""
