"""Compares the results of two checkouts: `python -m benchmarks checkouts OLD NEW [NAME ...]`.

Both checkouts plan the named topologies, or all shipped ones, and N random fleets (`benchmarks.certificates.fleets`), and both
simulate the plan of the old checkout. Plan files, the JSON of `plan` and of `simulate`, and timelines are compared byte for
byte, except for the seconds that a command took. A checkout runs with its own `.venv` if it has one, else with this Python.
Results are cached in the folder of results; delete a file to run its command again. All shipped topologies take about 25
minutes on two cores. Equal plans are guaranteed only if no search reaches its time limit.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from joblib import Parallel, delayed

from benchmarks.certificates.fleets import draw
from holmes_sim.commands import shipped_topologies
from sim.formats.topology import written

TIME_LIMIT = 600
"""Time limit of a search in seconds: more than nearly all topologies need."""
TOOK = re.compile(r'("seconds": )[0-9.e+-]+')
"""Matches the seconds that a command took in its JSON."""


def show(options: Sequence[str]) -> None:
    """Compare two checkouts and print a line for each topology whose results differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks checkouts")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("names", nargs="*", help="shipped topologies; default: all")
    parser.add_argument("--random", type=int, default=20, help="number of additional random fleets")
    parser.add_argument("--results", type=Path, help="folder in which results are cached")
    parser.add_argument("--time-limit", type=int, default=TIME_LIMIT, help="seconds of search for a plan")
    args = parser.parse_intermixed_args(options)
    with tempfile.TemporaryDirectory() as scratch:
        into = args.results or Path(scratch)
        topologies = [args.old / "topologies" / f"{name}.yaml" for name in args.names or shipped_topologies()]
        topologies += [_random(seed, into) for seed in range(args.random)]
        jobs = Parallel(n_jobs=-1, return_as="generator_unordered")
        equal = 0
        for name, differing in jobs(delayed(compare)(args.old, args.new, at, into, args.time_limit) for at in topologies):
            equal += not differing
            if differing:
                print(f"{name:<32} differs in {', '.join(differing)}", flush=True)
        print(f"{equal} of {len(topologies)} topologies have equal results")


def compare(old: Path, new: Path, topology: Path, into: Path, time_limit: int) -> tuple[str, list[str]]:
    """The name of a topology, and the names of its results that differ."""
    name = topology.stem
    folders = [into / which / name for which in ("old", "new")]
    for checkout, folder in zip((old, new), folders, strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        options = ("--json", "--time-limit", str(time_limit), "-o", str(folder / "plan.json"))
        _answer(checkout, folder / "plan.txt", "plan", str(topology.resolve()), *options)
        given = folders[0] / "plan.json"
        if given.exists():
            _answer(checkout, folder / "simulate.txt", "simulate", str(given), "--json", "--trace", str(folder / "trace.json"))
    kinds = "plan.json", "plan.txt", "simulate.txt", "trace.json"
    return name, [kind for kind in kinds if _text(folders[0] / kind) != _text(folders[1] / kind)]


def _answer(checkout: Path, into: Path, *command: str) -> None:
    """Run a command of a checkout and write its output and exit code to `into`, unless that file exists."""
    if into.exists():
        return
    own = checkout / ".venv" / "bin" / "python"
    python = str(own.absolute() if own.exists() else sys.executable)
    done = subprocess.run([python, "-m", "holmes_sim.cli", *command], cwd=checkout, capture_output=True, text=True, check=False)
    into.write_text(f"{done.stdout}{done.stderr if done.returncode else ''}\nexit code {done.returncode}\n", encoding="utf-8")


def _text(path: Path) -> str | None:
    """The text of a file without the seconds that a command took and without the folder that it wrote to; None if missing."""
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8")
    return TOOK.sub(r"\1", text).replace(str(path.parent), "")


def _random(seed: int, into: Path) -> Path:
    """Write the topology of a random fleet to a file and return its path."""
    path = into / f"random-{seed}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    request = draw(seed)
    path.write_text(json.dumps(written(request.topology)), encoding="utf-8")
    return path
