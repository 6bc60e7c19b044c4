"""holmes-sim init: describe a fleet: this host, hosts that ssh reaches, outputs of other tools, or answers to questions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holmes_sim.cli import output as out
from holmes_sim.cli.options import BatchSize, Json, ModelWord, SequenceLength

if TYPE_CHECKING:
    from holmes_sim.describing.description import Description
    from holmes_sim.describing.kept_answers import KeptAnswer

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
    from holmes_sim.describing import kept_answers
    from sim.errors import HolmesError

    if output.exists() and not force:
        raise HolmesError(f"{output}: exists already; choose another file with -o, or replace it with --force")
    out.distinct(output, hosts, *(imported.source(one)[1] for one in sources or ()))
    out.can_be_written(output)
    given = {"model": model, "global_batch_size": global_batch_size, "seq_len": seq_len}
    known = {key: one for key, one in given.items() if one is not None}
    found = _description(sources or [], hosts, output, name or output.stem, known)
    out.write(output, found.text())
    kept_answers.path(output).unlink(missing_ok=True)
    if as_json:
        out.show_json(found.facts())
        return
    for line in found.notes:
        out.note(line)
    out.note_written(output)
    out.note(f"Next: holmes-sim check {output}, then holmes-sim plan {output}")


def _description(sources: list[str], hosts: Path | None, output: Path, name: str, given: dict[str, Any]) -> Description:
    """The fleet by whatever was given. Raises HolmesError."""
    from holmes_sim.describing import description, host_list, host_probe
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
    return _asked(output, name, given)


def _asked(output: Path, name: str, given: dict[str, Any]) -> Description:
    """The fleet by answers to questions, first those that were kept when init was stopped. Raises HolmesError."""
    from holmes_sim.describing import kept_answers
    from holmes_sim.describing.questionnaire import Questionnaire

    out.note("This host has no GPU, so please answer some questions. Enter takes the default in brackets; Ctrl-C stops.")
    kept, file = kept_answers.read(output), kept_answers.path(output)
    if kept and not typer.confirm(f"Go on after {_number(kept)} in {file}?", default=True, err=True):
        kept = ()
    questions = _Questions(kept)
    try:
        return Questionnaire(questions, name).description(given)
    except (KeyboardInterrupt, typer.Abort):
        if questions.answers:
            out.write(file, kept_answers.text(questions.answers))
            out.note(f"\n{output} is not written. The same command goes on after {_number(questions.answers)} in {file}.")
        else:
            out.note("\nNothing is written.")
        raise


def _number(answers: Sequence[KeptAnswer]) -> str:
    return f"the {len(answers)} answers" if len(answers) > 1 else "the answer"


class _Questions:
    """Puts questions on the terminal after those that have a kept answer, and keeps all answers as they were typed."""

    def __init__(self, kept: Sequence[KeptAnswer]) -> None:
        self.answers: list[KeptAnswer] = []
        self._kept = list(kept)

    def __call__(self, question: str, default: str, check: Callable[[str], Any]) -> tuple[Any, bool]:
        """The answer to a question, and whether it was typed; a question is put until the answer is right."""
        from sim.errors import HolmesError

        def checked(text: str) -> tuple[Any, str]:
            typed = " ".join(text.split())
            try:
                return check(typed or default), typed
            except HolmesError as error:
                raise typer.BadParameter(str(error)) from None

        found = self._found(question, default, checked)
        value, typed = found or typer.prompt(
            f"{question} [{default}]", default="", show_default=False, value_proc=checked, err=True
        )
        self.answers.append((question, typed))
        return value, bool(typed)

    def _found(self, question: str, default: str, checked: Callable[[str], tuple[Any, str]]) -> tuple[Any, str] | None:
        """The kept answer to a question, shown like a typed one; None, also from then on, where it is to another question or no
        longer right."""
        if self._kept and self._kept[0][0] == question:
            with suppress(typer.BadParameter):
                found = checked(self._kept.pop(0)[1])
                out.note(f"{question} [{default}]: {found[1]}")
                return found
        self._kept.clear()
        return None
