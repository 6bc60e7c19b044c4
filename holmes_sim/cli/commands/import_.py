"""holmes-sim import: a topology from files of Slurm, NCCL, nvidia-smi, InfiniBand, Kubernetes and topograph."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json

NAME = "import"
ORDER = 62
EXAMPLE = "holmes-sim import topology.conf ib=a100.xml roce=h100.xml -o topo.yaml"


def command(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="Files; their type is recognised by their content. A file that describes a node applies to all nodes, unless "
            "it is given as CLUSTER=FILE, where CLUSTER is a cluster, switch, block or zone of another source.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="File to write the topology to. Default: print it.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the topology. Default: the name of the output file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a topology from files of Slurm, nvidia-smi topo -m, NCCL, nccl-tests, ibnetdiscover, Kubernetes and topograph."""
    from holmes_sim import imported

    for one in sources:
        out.distinct(output, imported.source(one)[1])
    out.can_be_written(output)
    found = imported.imported(sources, name or (output.stem if output else "imported"))
    out.write(output, found.text())
    if as_json:
        out.show_json(found.facts())
        return
    for line in found.notes:
        out.note(line)
    if output is None:
        sys.stdout.write(found.text())
    out.note_written(output)
