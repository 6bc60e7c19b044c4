"""`python -m benchmarks checkouts OLD NEW [NAME ...]`: what two checkouts of the project answer.

Both plan every shipped topology, or those whose names are given, and N random fleets (`benchmarks.certificates.fleets`), and
simulate the plan of the old one. The plan files, the JSON of `plan` and of `simulate` and the timelines are compared byte for
byte, the seconds that a command took left out. Each checkout runs with its own `.venv` if it has one, else with this Python.
Answers are kept in the folder of results, and read from there when they are asked for again: delete what must be run again.
All shipped topologies take some 25 minutes of two cores; the same plan is only promised where no time limit was reached.
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
"""Seconds of search, more than nearly all topologies take."""
TOOK = re.compile(r'("seconds": )[0-9.e+-]+')
"""Seconds that a command took, in its JSON."""


def show(options: Sequence[str]) -> None:
    """Compare two checkouts, and print a line for each topology on which they differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks checkouts")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("names", nargs="*", help="shipped topologies; all of them where none is named")
    parser.add_argument("--random", type=int, default=20, help="random fleets besides")
    parser.add_argument("--results", type=Path, help="a folder in which answers are kept")
    parser.add_argument("--time-limit", type=int, default=TIME_LIMIT, help="seconds of search for a plan")
    asked = parser.parse_intermixed_args(options)
    with tempfile.TemporaryDirectory() as scratch:
        into = asked.results or Path(scratch)
        topologies = [asked.old / "topologies" / f"{name}.yaml" for name in asked.names or shipped_topologies()]
        topologies += [_random(seed, into) for seed in range(asked.random)]
        jobs = Parallel(n_jobs=-1, return_as="generator_unordered")
        alike = 0
        for name, differing in jobs(delayed(compare)(asked.old, asked.new, at, into, asked.time_limit) for at in topologies):
            alike += not differing
            if differing:
                print(f"{name:<32} differs in {', '.join(differing)}", flush=True)
        print(f"{alike} of {len(topologies)} topologies alike")


def compare(old: Path, new: Path, topology: Path, into: Path, time_limit: int) -> tuple[str, list[str]]:
    """The name of a topology, and which answers about it differ."""
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
    """What a command of a checkout prints, with its exit code, unless it is known already."""
    if into.exists():
        return
    own = checkout / ".venv" / "bin" / "python"
    python = str(own.absolute() if own.exists() else sys.executable)
    done = subprocess.run([python, "-m", "holmes_sim.cli", *command], cwd=checkout, capture_output=True, text=True, check=False)
    into.write_text(f"{done.stdout}{done.stderr if done.returncode else ''}\nexit code {done.returncode}\n", encoding="utf-8")


def _text(path: Path) -> str | None:
    """A file without the seconds that a command took, and without the folder that it wrote to."""
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8")
    return TOOK.sub(r"\1", text).replace(str(path.parent), "")


def _random(seed: int, into: Path) -> Path:
    """The topology of a random fleet, as a file."""
    path = into / f"random-{seed}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    request = draw(seed)
    path.write_text(json.dumps(written(request.topology)), encoding="utf-8")
    return path
