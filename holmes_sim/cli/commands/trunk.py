"""holmes-sim trunk: exact training, local steps and compression between clusters, by the bandwidth of their links."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import islands_plans
from holmes_sim.cli import output as out
from holmes_sim.cli.options import BatchSize, Edits, Json, ModelWord, SequenceLength, TopologyArgument, edited

NAME = "trunk"
ORDER = 36
EXAMPLE = "holmes-sim trunk two-sites-trunk --chart trunk.png"


def command(
    topo: TopologyArgument,
    bandwidths: Annotated[
        str | None,
        typer.Option(
            metavar="RATES", help="Bandwidths between islands, such as '1 Gbit/s, 10 Gbit/s'. Default: 0.1 to 100 Gbit/s."
        ),
    ] = None,
    sync: Annotated[
        list[str] | None,
        typer.Option("--sync", metavar="SETTING", help="A sync strategy, such as diloco=30,int8; may be repeated."),
    ] = None,
    model: ModelWord = None,
    global_batch_size: BatchSize = None,
    seq_len: SequenceLength = None,
    edits: Edits = None,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", min=1.0, help="Time limit of all searches together.")] = 60.0,
    chart: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw tokens/s by bandwidth (png, svg, pdf).")] = None,
    as_json: Json = False,
) -> None:
    """Compare exact training, local steps and compression between clusters by the bandwidth of the links between them."""
    from holmes_sim import commands, trunks

    islands_plans.refuse(topo, "a topology", f"`holmes-sim show {topo}` prints the islands")
    where = edited(commands.load(topo), edits)
    out.distinct(Path(topo), chart)
    out.can_be_written(chart)
    out.can_be_drawn(chart)
    workload = commands.workload_of(where, model, global_batch_size, seq_len)
    rates = bandwidths.split(",") if bandwidths else trunks.BANDWIDTHS
    with out.progress("planning", time_limit) as progress:
        found = trunks.trunk_bandwidths(where, workload, rates, sync or trunks.STRATEGIES, None, time_limit, progress)
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.trunk_bandwidths(found), chart)
    if as_json:
        out.show_json(found.facts())
        return
    from holmes_sim import printing

    out.show(printing.trunk_bandwidths(found))
    out.note(f"Planned in {found.seconds:.1f} s." + (f" Written to {chart}." if chart else ""))
