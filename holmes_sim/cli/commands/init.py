"""holmes-sim init: describe a fleet: this host, hosts that ssh reaches, outputs of other tools, or answers to questions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holmes_sim.cli import output as out
from holmes_sim.cli.options import BatchSize, Json, ModelWord, SequenceLength

if TYPE_CHECKING:
    from holmes_sim.describing.description import Description

NAME = "init"
ORDER = 2
EXAMPLE = "holmes-sim init -o topo.yaml"
NO_TERMINAL = (
    "this host has no GPU that nvidia-smi or rocm-smi lists, and there is no terminal for questions; give files of a GPU host "
    "(holmes-sim init nvidia-smi.txt ibstat.txt), or --hosts FILE with hosts that ssh reaches"
)


def command(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE",
            help="Files with outputs of nvidia-smi, ibstat, sinfo, lspci and others, as for holmes-sim import. "
            "Default: this host if it has GPUs, else questions.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="File to write the topology to.")] = Path(
        "topo.yaml"
    ),
    hosts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Ask the hosts in this file by ssh: one a line, such as gpu01 or gpu01 slots=8."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the topology. Default: the name of the output file.")
    ] = None,
    model: ModelWord = None,
    global_batch_size: BatchSize = None,
    seq_len: SequenceLength = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")] = False,
    as_json: Json = False,
) -> None:
    """Describe your fleet in a commented topology file: this host, other hosts by ssh, outputs of tools, or your answers."""
    from holmes_sim import imported
    from sim.errors import HolmesError

    if output.exists() and not force:
        raise HolmesError(f"{output}: exists already; choose another file with -o, or replace it with --force")
    out.distinct(output, hosts, *(imported.source(one)[1] for one in sources or ()))
    out.can_be_written(output)
    given = {"model": model, "global_batch_size": global_batch_size, "seq_len": seq_len}
    found = _description(sources or [], hosts, name or output.stem, {key: one for key, one in given.items() if one is not None})
    out.write(output, found.text())
    if as_json:
        out.show_json(found.facts())
        return
    for line in found.notes:
        out.note(line)
    out.note_written(output)
    out.note(f"Next: holmes-sim check {output}, then holmes-sim plan {output}")


def _description(sources: list[str], hosts: Path | None, name: str, given: dict[str, Any]) -> Description:
    """The fleet by whatever was given. Raises HolmesError."""
    from holmes_sim.describing import description, host_list, host_probe
    from holmes_sim.describing.questionnaire import Questionnaire
    from sim.errors import HolmesError

    if sources or hosts is not None:
        texts, notes = list(description.of_files(sources)), tuple[str, ...]()
        made = [text.name for text in texts]
        if hosts is not None:
            listed = host_list.read(hosts)
            with out.progress(f"asking {len(listed)} hosts"):
                answers, notes = host_list.ask(listed)
            texts += answers
            made.append(f"the hosts of {hosts}")
        return description.of_sources(texts, name, f"holmes-sim init: {', '.join(made)}", given, notes)
    with out.progress("asking this host"):
        texts = list(host_probe.here())
    if host_probe.has_devices(texts):
        return description.of_sources(texts, name, f"holmes-sim init on host {texts[0].host}", given)
    if not sys.stdin.isatty():
        raise HolmesError(NO_TERMINAL)
    out.note("This host has no GPU, so please answer some questions. Enter takes the default in brackets; Ctrl-C stops.")
    questions = _Questions()
    try:
        return Questionnaire(questions, name).description(given)
    except (KeyboardInterrupt, typer.Abort):
        out.note(questions.stopped())
        raise


class _Questions:
    """Puts questions on the terminal, and keeps the answers for the case that Ctrl-C stops them."""

    def __init__(self) -> None:
        self._answers: list[str] = []

    def __call__(self, question: str, default: str, check: Callable[[str], Any]) -> tuple[Any, bool]:
        """Put a question until the answer is right: the answer, and whether it was typed."""
        from sim.errors import HolmesError

        def checked(text: str) -> tuple[Any, bool]:
            typed = text.strip()
            try:
                return check(typed or default), bool(typed)
            except HolmesError as error:
                raise typer.BadParameter(str(error)) from None

        answer: tuple[Any, bool] = typer.prompt(
            f"{question} [{default}]", default="", show_default=False, value_proc=checked, err=True
        )
        self._answers.append(f"  {question}: {answer[0]}")
        return answer

    def stopped(self) -> str:
        """What to say if the questions end early."""
        if not self._answers:
            return "\nNothing is written."
        count = f"{len(self._answers)} answer{'s' if len(self._answers) > 1 else ''}"
        return "\n".join(
            ("", f"Nothing is written. init starts with the first question again; {count} so far:", *self._answers)
        )
