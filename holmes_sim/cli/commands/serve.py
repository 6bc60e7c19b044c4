"""holmes-sim serve: a page on this machine on which to edit a topology and plan it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import islands_plans
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Edits, TopologyArgument, edited

NAME = "serve"
ORDER = 51
EXAMPLE = "holmes-sim serve holmes-hybrid-4"
NEEDED = ("starlette", "uvicorn", "jinja2", "python_multipart")


def command(
    topo: TopologyArgument = "holmes-hybrid-4",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port of 127.0.0.1; 0 is a free one.")] = 0,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder that keeps the topologies and plans of the page; default: a temporary one."),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, and open no browser.")] = False,
    edits: Edits = None,
) -> None:
    """Serve a page on this machine alone: edit a topology as a picture, plan it, compare two plans. Ctrl-C ends it."""
    from sim.errors import HolmesError

    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise HolmesError(f"serve needs {', '.join(missing)}; install with: pip install 'holmes-sim[serve]'")
    from holmes_sim import commands
    from holmes_sim.serving.server import serve

    def announce(address: str, where: Path) -> None:
        out.note(f"Topologies and plans are kept in {where}." if folder else "Topologies and plans are deleted at the end.")
        out.note("Ctrl-C ends the server. Open this address, which has the token:")
        out.show_line(address)

    islands_plans.refuse(topo, "a topology", f"`holmes-sim report {topo} -o page.html` makes a page")
    serve(edited(commands.load(topo), edits), folder, port, announce, not no_browser)
