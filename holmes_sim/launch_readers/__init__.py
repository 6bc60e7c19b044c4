"""Formats of launches that can be read: one file per format.

A module provides `NAME`, `recognises(text)` and `read(text, name, given)`: the job of a launch, from the text of the file, its
name for messages, and what the user gives beside it. The folder is the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from holmes_sim.launch_reading.given import Given
from holmes_sim.launch_reading.job import Job
from sim.errors import HolmesError
from sim.formats.documents import read_text
from sim.registry import Registry


class LaunchReader(Protocol):
    """Interface of every module of this folder."""

    NAME: str

    def recognises(self, text: str) -> bool:
        """Whether a text is in this format."""
        ...

    def read(self, text: str, name: str, given: Given) -> Job:
        """The job. Raises HolmesError with one line per fault."""
        ...


REGISTRY: Registry[LaunchReader] = Registry(__name__, "format of launches", HolmesError)


def read(path: str | Path, given: Given) -> Job:
    """The job of a launch file. Raises HolmesError where it is wrong or in no format that is known."""
    text = read_text(path, HolmesError)
    for reader in REGISTRY.entries():
        if reader.recognises(text):
            return reader.read(text, str(path), given)
    known = ", ".join(reader.NAME for reader in REGISTRY.entries())
    raise HolmesError(f"{path}: no launch that is known; expected is one of: {known}")
