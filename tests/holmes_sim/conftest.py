"""The command line as tests call it, and work without further processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from holmes_sim import cli, processes
from tests.holmes_sim.documents import conforms, printed_documents


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch, capsys) -> Run:
    """Run the command line in this process: exit code, stdout, stderr. What --json prints must conform to its schema."""

    def ran(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["holmes-sim", *map(str, arguments)])
        capsys.readouterr()
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        seen = capsys.readouterr()
        assert "Traceback" not in seen.out + seen.err
        for line in printed_documents(arguments, seen.out) if code == 0 else ():
            conforms(json.loads(line))
        return Ran(code, seen.out, seen.err)

    return ran


@pytest.fixture(scope="module")
def in_one_process() -> Iterator[None]:
    """Work on small numbers of items here: starting processes takes longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "PARALLEL_FROM", 1_000)
        yield
