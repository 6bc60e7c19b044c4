"""Every notebook asks a question, imports holmes_sim only, has no stored output and runs."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

NOTEBOOKS = sorted(Path(__file__).parent.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    # Unix sockets: a free TCP port can be taken by another process before the kernel opens it.
    kernel = AsyncKernelManager(transport="ipc", ip=str(tmp_path_factory.mktemp("kernel") / "socket"))
    folder = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(nbformat.read(path, as_version=4), km=kernel, timeout=180, resources=folder)
    client.execute(cleanup_kc=True)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_clean_and_stands_on_the_face_only(path: Path) -> None:
    code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    lines = [line for cell in code for line in cell["source"]]
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
