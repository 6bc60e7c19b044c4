"""Exit codes of commands are those of the table in the documentation, and stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holmes_sim import cli, lists
from sim.errors import HolmesError, Infeasible

PAGE = Path(__file__).parents[3] / "docs" / "programs.md"


def test_the_table_of_the_docs_is_that_of_the_program() -> None:
    table = PAGE.read_text(encoding="utf-8").split("## Exit codes\n")[1]
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", table, re.MULTILINE)
    assert {int(code): when for code, when in rows} == cli.EXIT_CODES
    assert list(cli.EXIT_CODES) == [0, 1, 2, 3, 130]


def kinds(error: type[HolmesError]) -> Iterator[type[HolmesError]]:
    """A class of errors and its subclasses."""
    yield error
    for one in error.__subclasses__():
        yield from kinds(one)


def test_only_an_infeasible_request_has_a_code_of_its_own() -> None:
    assert {error.exit_code for error in kinds(HolmesError) if not issubclass(error, Infeasible)} == {2}
    assert Infeasible.exit_code == 3


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (HolmesError("wrong"), 2, "error: wrong\n"),
        (Infeasible("no plan"), 3, "error: no plan\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_an_error_ends_a_command(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, said: str
) -> None:
    def end(kind: str) -> None:
        raise raised

    monkeypatch.setattr(lists, "list", end)
    seen = run("list", "devices")
    assert (seen.code, seen.out) == (code, "")
    assert seen.err.startswith(said)


@pytest.mark.parametrize(("arguments", "code"), [(("list", "nics"), 0), (("list", "nothing"), 2), (("list", "--nothing"), 2)])
def test_arguments_end_a_command(run: Callable[..., Any], arguments: tuple[str, ...], code: int) -> None:
    assert run(*arguments).code == code
