"""holmes-sim profile: measure a device and its links; write a catalogue entry and a profile that `plan` uses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json

NAME = "profile"
ORDER = 65
EXAMPLE = "holmes-sim profile --model llama-3-8b --microbatch-sizes 1,2,4 --tp 1,2 -o profiled"


def command(
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE", help="Model of the catalogue, or a Hugging Face config.json; may be repeated."),
    ] = None,
    seq_len: Annotated[int, typer.Option(metavar="N", min=1, help="Tokens per sequence.")] = 2048,
    microbatch_sizes: Annotated[str, typer.Option(metavar="N,N,...", help="Microbatch sizes to measure.")] = "1,2,4",
    tp: Annotated[
        str, typer.Option(metavar="N,N,...", help="Tensor-parallel degrees: the share of one rank is measured on this device.")
    ] = "1",
    precision: Annotated[
        str | None, typer.Option(metavar="bf16|fp16|fp32", help="Precision. Default: bf16 on a GPU, fp32 on a CPU.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the device in the files.")] = None,
    nccl_tests: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Output of an nccl-tests program; may be repeated.")
    ] = None,
    probe: Annotated[
        int | None, typer.Option(metavar="N", help="Time collectives between N processes on this machine.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Folder to write the files into.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a device of this machine, and links from nccl-tests output or a probe (only the links if no model is given)."""
    from holmes_sim import files, profiles
    from holmes_sim.profiling.results import ProfileResult
    from sim.formats.topology import load_model

    sizes, degrees = profiles.numbers(microbatch_sizes, "--microbatch-sizes"), profiles.numbers(tp, "--tp")
    if output is not None:
        files.folder(output)
    with out.progress("profiling") as progress:
        models = [load_model(one) for one in model or []]
        joined = profiles.measure_links(name, nccl_tests or [], probe, progress)
        wanted = models or joined is None
        device = profiles.measure_device(models, seq_len, sizes, degrees, precision, name, progress) if wanted else None
    found = ProfileResult(device, joined)
    written = profiles.files(found)
    for file, text in written.items():
        out.write(output / file if output is not None else None, text)
    if as_json:
        out.show_json(profiles.facts(found))
        return
    from holmes_sim import printing

    out.show(printing.profiled(found))
    out.note_written(*(output / file for file in written) if output is not None else ())
