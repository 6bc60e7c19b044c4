"""Every notebook asks a question, imports holmes_sim only, and has the outputs of a run, to be read where nothing runs."""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

from notebooks.refresh import NOTEBOOKS, executed
from tests.more import after

LARGEST, LARGEST_TOGETHER = 300_000, 2_000_000
"""Bytes of a notebook, and of all of them."""
HURRY = 30
"""The searches of a notebook have this part of their time, one second or two, and simulations of faults this part of their
repetitions."""
PATIENT = {"9-two-universities-and-a-cloud": 6}
"""Notebooks whose searches need more: this one shows a plan of islands, which a shorter search does not always find."""
QUICK = ("1-first-plan",)
"""A notebook that plans. `make test-more` runs the others: of these, the usual tests
resolve and bind what they call."""
FOLDERS = "home|root|tmp|var|usr|opt|mnt|Users|work|private"
OF_THIS_MACHINE = re.compile(rf"(?<![\w.~])/(?:{FOLDERS})/|\b0x[0-9a-f]{{6,}}|site-packages")
"""Paths and addresses that differ from machine to machine."""


def code_cells(path: Path) -> list[dict[str, Any]]:
    """The cells of a stored notebook that have code."""
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def kinds(outputs: list[dict[str, Any]]) -> list[str]:
    """What a cell shows: printed text, and the formats of each result."""
    return [one.get("name") or " ".join(sorted(one["data"])) for one in outputs]


@pytest.mark.parametrize(
    "path", after(len(QUICK), sorted(NOTEBOOKS, key=lambda one: one.stem not in QUICK)), ids=lambda one: one.stem
)
def test_a_notebook_runs_and_shows_what_is_stored(path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Outputs of the same kind in the same cells. Numbers may differ: the searches have less time here."""
    found = executed(path, tmp_path_factory.mktemp("kernel"), hurry=PATIENT.get(path.stem, HURRY))
    ran = [kinds(cell.outputs) for cell in found.cells if cell.cell_type == "code"]
    assert ran == [kinds(cell["outputs"]) for cell in code_cells(path)], "store them with: make refresh-notebooks"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_say_nothing_of_the_machine(path: Path) -> None:
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "all cells ran once, in order"
    assert all(cell["metadata"] == {} for cell in cells), "no times of execution"
    assert json.loads(path.read_text())["metadata"]["language_info"] == {"name": "python"}
    outputs = [one for cell in cells for one in cell["outputs"]]
    assert any("image/png" in one.get("data", {}) for one in outputs), "a notebook has a picture"
    for one in outputs:
        assert one["output_type"] in ("display_data", "execute_result", "stream"), "no error"
        assert one.get("name") != "stderr"
        shown = one.get("data", {"text": one.get("text")})
        texts = ["".join(text) for kind, text in shown.items() if kind != "image/png"]
        assert not any(map(OF_THIS_MACHINE.search, texts)), texts


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_calls_exists_and_takes_its_arguments(path: Path) -> None:
    """Every cell compiles; each name of holmes_sim that it uses is there, and each call of one has arguments that bind."""
    code = ast.parse("\n".join("".join(cell["source"]) for cell in code_cells(path)))
    known: dict[str, Any] = {}
    for imported in (node for node in code.body if isinstance(node, ast.Import | ast.ImportFrom)):
        exec(compile(ast.Module([imported], []), path.name, "exec"), known)

    def found(node: ast.expr) -> Any:
        """The object that an expression of names and dots is, None where it is another expression or a variable."""
        if isinstance(node, ast.Name):
            return known.get(node.id)
        owner = found(node.value) if isinstance(node, ast.Attribute) else None
        return None if owner is None else getattr(owner, node.attr)

    bound = 0
    for node in ast.walk(code):
        called = found(node) if isinstance(node, ast.Attribute) else found(node.func) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and getattr(called, "__module__", "").startswith(("holmes_sim", "planner", "sim")):
            plain = [arg for arg in node.args if not isinstance(arg, ast.Starred)]
            inspect.signature(called).bind_partial(*plain, **{word.arg: None for word in node.keywords if word.arg})
            bound += 1
    assert bound


def test_notebooks_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in NOTEBOOKS}
    assert max(sizes.values()) <= LARGEST and sum(sizes.values()) <= LARGEST_TOGETHER, sizes


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_stands_on_the_face_only(path: Path) -> None:
    lines = [line for cell in code_cells(path) for line in cell["source"]]
    imports = [line.split()[1].split(".")[0] for line in lines if line.startswith(("import ", "from "))]
    assert "holmes_sim" in imports
    assert set(imports) <= {"holmes_sim", "pandas", "matplotlib", "dataclasses"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_on_the_kernel_that_ipykernel_installs(path: Path) -> None:
    assert json.loads(path.read_text())["metadata"]["kernelspec"]["name"] == "python3"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_asks_in_its_first_cell(path: Path) -> None:
    first = json.loads(path.read_text())["cells"][0]
    assert first["cell_type"] == "markdown"
    assert first["source"][0].startswith("# ")
    assert "?" in "".join(first["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_readme_links_a_notebook(path: Path) -> None:
    assert f"(notebooks/{path.name})" in (path.parent.parent / "README.md").read_text()
