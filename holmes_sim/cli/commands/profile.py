"""holmes-sim profile: what the device at hand and its links do, as a catalogue entry and a profile that `plan` uses."""

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
        list[str] | None, typer.Option(metavar="NAME|FILE", help="A model of the catalogue or a config.json; repeatable.")
    ] = None,
    seq_len: Annotated[int, typer.Option(metavar="N", min=1, help="Tokens of a sequence.")] = 2048,
    microbatch_sizes: Annotated[str, typer.Option(metavar="N,N,...", help="Microbatch sizes to measure.")] = "1,2,4",
    tp: Annotated[str, typer.Option(metavar="N,N,...", help="Tensor-parallel degrees: a rank's part, on this device.")] = "1",
    precision: Annotated[
        str | None, typer.Option(metavar="bf16|fp16|fp32", help="bf16 (a GPU's default), fp16 or fp32 (a CPU's).")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What to call the device.")] = None,
    nccl_tests: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="What a program of nccl-tests printed; may be given again.")
    ] = None,
    probe: Annotated[int | None, typer.Option(metavar="N", help="Time collectives among N processes of this machine.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Write the files into a folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure the device at hand, and links by what nccl-tests printed or by a probe (these alone, where no model is given)."""
    from holmes_sim import files, profiles
    from holmes_sim.profiling.found import Found
    from sim.formats.topology import load_model

    sizes, degrees = profiles.numbers(microbatch_sizes, "--microbatch-sizes"), profiles.numbers(tp, "--tp")
    if output is not None:
        files.folder(output)
    with out.progress("profiling") as progress:
        models = [load_model(one) for one in model or []]
        joined = profiles.measure_links(name, nccl_tests or [], probe, progress)
        wanted = models or joined is None
        device = profiles.measure_device(models, seq_len, sizes, degrees, precision, name, progress) if wanted else None
    found = Found(device, joined)
    written = profiles.files(found)
    for file, text in written.items():
        out.write(output / file if output is not None else None, text)
    if as_json:
        out.show_json(profiles.facts(found))
        return
    from holmes_sim import printing

    out.show(printing.profiled(found))
    out.note_written(*(output / file for file in written) if output is not None else ())
