"""holmes-sim compare: several strategies on one topology."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes_sim.cli import output as out
from holmes_sim.cli.options import BatchSize, Json, Measured, ModelWord, SequenceLength, pinned

if TYPE_CHECKING:
    from planner.question import Wishes

NAME = "compare"
ORDER = 30
EXAMPLE = "holmes-sim compare holmes-hybrid-4 --strategies holmes,megatron --chart strategies.png"


@pinned
def command(
    what: Annotated[list[str], typer.Argument(metavar="TOPO", help="A topology file, or the name of a shipped one.")],
    wishes: Wishes,
    strategies: Annotated[str, typer.Option(metavar="all|NAME,...", help="Who plans (holmes-sim list strategies).")] = "all",
    model: ModelWord = None,
    global_batch_size: BatchSize = None,
    seq_len: SequenceLength = None,
    time_limit: Annotated[float, typer.Option(min=1.0, help="Seconds of search for each strategy that searches.")] = 50.0,
    chart: Annotated[Path | None, typer.Option(help="Draw samples/s by strategy (png, svg, pdf).")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write every plan into this folder.")] = None,
    profile: Measured = None,
    as_json: Json = False,
) -> None:
    """Plan a topology by several strategies, and say how fast each would be."""
    from holmes_sim import commands, files
    from sim import planfile

    where = commands.load(_one_topology(what), profile)
    workload = commands.workload_of(where, model, global_batch_size, seq_len)
    out.can_be_drawn(chart)
    if output is not None:
        files.folder(output)
    names = () if strategies == "all" else tuple(name.strip() for name in strategies.split(","))
    with out.progress("comparing") as progress:
        answer = commands.compare(where, workload, names, wishes, time_limit, progress)
    if output is not None:
        for name, plan, _ in answer.ranked:
            out.write(output / f"{name}.json", planfile.to_json(plan))
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.comparison(answer), chart)
    if as_json:
        out.show_json(answer.facts())
    else:
        from holmes_sim import printing

        out.show(printing.compared(answer))
        out.note_written(output, chart)
    out.note(answer.note)


def _one_topology(what: list[str]) -> str:
    """The topology among the arguments; plans and timelines will be compared here one day."""
    from sim.errors import HolmesError

    for name in what:
        if name.endswith(".json"):
            raise HolmesError(f"{name}: plans and timelines cannot be compared yet; compare takes a topology")
    if len(what) > 1:
        raise HolmesError(f"compare takes one topology, not {len(what)}: {' '.join(what)}")
    return what[0]
