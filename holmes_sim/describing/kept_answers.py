"""Answers to the questions of `holmes-sim init` in a file beside its output, from which it goes on after it was stopped.

A line has a question, a tab and the answer as it was typed, in the order of the questions; Enter is an empty answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.errors import HolmesError
from sim.formats.documents import read_text

KeptAnswer = tuple[str, str]
"""A question and the answer to it."""


def path(output: Path) -> Path:
    """The file of the answers for an output."""
    return output.with_name(f"{output.name}.answers")


def text(answers: Sequence[KeptAnswer]) -> str:
    """The content of the file."""
    return "".join(f"{question}\t{typed}\n" for question, typed in answers)


def read(output: Path) -> tuple[KeptAnswer, ...]:
    """The answers that are kept for an output; none without a file. Raises HolmesError for a line of another form."""
    kept = path(output)
    found: list[KeptAnswer] = []
    for number, line in enumerate(read_text(kept, HolmesError).splitlines() if kept.exists() else (), 1):
        question, tab, typed = line.partition("\t")
        if not tab:
            raise HolmesError(f"{kept}:{number}: a question, a tab and an answer are expected; remove the file to begin anew")
        found.append((question, typed))
    return tuple(found)
