"""Runs the notebooks and stores their outputs: `python notebooks/refresh.py [NUMBER ...]`, or `make refresh-notebooks` for all.

What differs from run to run is not stored: warnings, times of execution and the version of Python.
"""

from __future__ import annotations

import base64
import io
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).parent
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LEAST = 1
"""Least seconds of a search."""
FEWEST = 2
"""Least repetitions of a simulation with random faults."""
_LIMIT = re.compile(r"""(\btime_limit(?:=|": ))(\d+)""")
_SEEDS = re.compile(r"""("seeds": range\()(\d+)""")


def executed(path: Path, sockets: Path, hurry: int = 1) -> nbformat.NotebookNode:
    """A notebook as it is after all of its cells ran, with time limits and repetitions divided by `hurry`.

    `sockets`: an empty folder."""
    # Unix sockets: a free TCP port can be taken by another process before the kernel opens it.
    kernel = AsyncKernelManager(transport="ipc", ip=str(sockets / "socket"))
    folder = {"metadata": {"path": str(path.parent)}}
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells if hurry > 1 else ():
        for number, least in ((_LIMIT, LEAST), (_SEEDS, FEWEST)):
            cell.source = number.sub(lambda found, least=least: f"{found[1]}{max(int(found[2]) // hurry, least)}", cell.source)
    client = NotebookClient(notebook, km=kernel, timeout=600, resources=folder, record_timing=False, coalesce_streams=True)
    client.execute(cleanup_kc=True)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            for data in (one["data"] for one in cell.outputs if "image/png" in one.get("data", {})):
                data["image/png"] = smaller(data["image/png"])
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def smaller(picture: str) -> str:
    """A PNG picture in base64 with at most 256 colours, which is a quarter as large, if it is smaller."""
    stored = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            stored, "PNG", optimize=True
        )
    found = base64.b64encode(stored.getvalue()).decode()
    return found if len(found) < len(picture) else picture


def main(numbers: list[str]) -> None:
    """Run the notebooks with these numbers, or all, and store their outputs."""
    for path in NOTEBOOKS:
        if not numbers or path.name.split("-")[0] in numbers:
            print(path.name, flush=True)
            with tempfile.TemporaryDirectory() as sockets:
                nbformat.write(executed(path, Path(sockets)), path)


if __name__ == "__main__":
    main(sys.argv[1:])
