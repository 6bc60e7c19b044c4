"""Open MPI maps an exported launch: which rank would run on which host.

`hosts` and `world_size` are mpirun's own map of hosts that need not exist (--do-not-launch): version 5 from PyPI
(`requirements-mpi.txt`); up to MOST hosts version 4.1 too (it asks the resolver for every host), where MPI_ROOT names the
folder under which Debian's openmpi-bin, libopenmpi3, openmpi-common and what they need are unpacked with `dpkg -x`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

AS_ROOT = {f"{name}_ALLOW_RUN_AS_ROOT{end}": "1" for name in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}
DISPLAY = {
    "4": "--mca plm isolated --display-map --do-not-launch",
    "5": "--prtemca prte_do_not_resolve 1 --display map --do-not-launch",
}
MOST = 8


def versions() -> dict[str, str]:
    """Open MPI's versions by their first number."""
    found = {}
    for program, environment in _mpiruns():
        told = subprocess.check_output([program, "--version"], env=environment, text=True)
        version = re.search(r"\d+\.\d+\.\d+", told)[0]
        found[f"openmpi {version[0]}"] = version
    return found


def read(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """The map; raises where mpirun refuses the line, or its versions differ."""
    few = len({place.rsplit("/", 1)[0] for place in plan["placement"]}) <= MOST
    maps = [_map(folder, program, environment) for program, environment in _mpiruns()[: 2 if few else 1]]
    if any(found != maps[0] for found in maps[1:]):
        raise ValueError(f"the versions differ: {maps}")
    return {"world_size": len(maps[0]), "hosts": maps[0]}


def _mpiruns() -> list[tuple[str, dict[str, str]]]:
    """(program, its environment) of every Open MPI here."""
    found = []
    beside = Path(sys.executable).parent / "mpirun"
    if beside.exists():
        found.append((str(beside), os.environ | AS_ROOT))
    if "MPI_ROOT" in os.environ:
        root = Path(os.environ["MPI_ROOT"])
        libraries = root / "usr/lib/x86_64-linux-gnu"
        places = {
            "OPAL_PREFIX": f"{root}/usr",
            "OPAL_PKGDATADIR": f"{root}/usr/share/openmpi",
            "OPAL_PKGLIBDIR": f"{libraries}/openmpi/lib/openmpi3",
            "LD_LIBRARY_PATH": f"{libraries}:{root}/lib/x86_64-linux-gnu:{libraries}/openmpi/lib",
        }
        found.append((f"{root}/usr/bin/orterun", os.environ | AS_ROOT | places))
    if not found:
        raise FileNotFoundError("no mpirun beside this Python, and MPI_ROOT is not set")
    return found


def _map(folder: Path, program: str, environment: dict[str, str]) -> dict[str, str]:
    version = subprocess.check_output([program, "--version"], env=environment, text=True)
    with tempfile.TemporaryDirectory() as scratch:
        stub = Path(scratch) / "mpirun"
        stub.write_text(f'#!/bin/sh\nexec {program} {DISPLAY[re.search(r"[0-9]", version)[0]]} "$@"\n')
        stub.chmod(0o755)
        words = ["bash", str(folder / "mpirun.sh"), "train.py"]
        named = environment | {"PATH": f"{scratch}:{environment['PATH']}"}
        done = subprocess.run(words, env=named, text=True, capture_output=True, timeout=120)
    found, host = {}, ""
    for line in done.stdout.splitlines():
        node = re.search(r"Data for node: (\S+)", line)
        rank = re.search(r"Process rank: (\d+)|Data for proc: \[.*,(\d+)\]", line)
        host = node[1] if node else host
        if rank:
            found[rank[1] or rank[2]] = host
    if not found:
        raise ValueError(f"{program}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return dict(sorted(found.items(), key=lambda pair: int(pair[0])))
