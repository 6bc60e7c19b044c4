"""Open MPI runs an exported launch: which rank is on which host, by blocks and by rankfile.

`hosts` and `world_size` are what mpirun maps of hosts that need not exist (--do-not-launch): version 5 from PyPI
(`requirements-mpi.txt`) both ways. Up to MOST hosts it starts the processes too, all on this machine behind a stand-in for ssh,
and each says its rank, where it was sent, whose script it is and how many cores it has; and version 4.1 maps the blocks (it
asks the resolver for every host), where MPI_ROOT names the folder under which Debian's openmpi-bin, libopenmpi3, openmpi-common
and what they need are unpacked with `dpkg -x`.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

AS_ROOT = {f"{name}_ALLOW_RUN_AS_ROOT{end}": "1" for name in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}
BLOCKS, RANKFILE = "mpirun.sh", "mpirun-rankfile.sh"
DISPLAY = {
    "4": "--mca plm isolated --display-map --do-not-launch",
    "5": "--prtemca prte_do_not_resolve 1 --display map --do-not-launch",
}
START = "--prtemca prte_do_not_resolve 1 --prtemca plm_ssh_agent {ssh}"
MOST = 8
PATIENCE = 60
SSH = """\
#!/bin/bash
# ssh OPTIONS HOST COMMAND, in little: the command is run here
while [[ $1 == -* ]]; do shift; done
export SENT_TO=$1
shift
exec bash -c "$*"
"""
PYTHON = '#!/bin/sh\necho "rank $OMPI_COMM_WORLD_RANK sent to $SENT_TO is of $HOLMES_SCRIPT with $(nproc) cores"\n'


def versions() -> dict[str, str]:
    """Open MPI's versions by their first number."""
    found = {}
    for program, environment in _mpiruns():
        output = subprocess.check_output([program, "--version"], env=environment, text=True)
        version = re.search(r"\d+\.\d+\.\d+", output)[0]
        found[f"openmpi {version[0]}"] = version
    return found


def read(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """What all ways come to; raises where mpirun refuses a line, a process has other cores than mpirun, or they differ."""
    few = len({place.rsplit("/", 1)[0] for place in plan["placement"]}) <= MOST
    found = {}
    for program, environment in _mpiruns()[: 2 if few else 1]:
        version = re.search(r"\d", subprocess.check_output([program, "--version"], env=environment, text=True))[0]
        for script in (BLOCKS, RANKFILE) if version == "5" else (BLOCKS,):
            found[f"{script} mapped by {version}"] = _mapped(_output(folder / script, program, DISPLAY[version], environment))
            if few and version == "5":
                found[f"{script} started"] = _started(_output(folder / script, program, START, environment))
    first = next(iter(found.values()))
    if any(one != first for one in found.values()):
        raise ValueError(f"they differ: {found}")
    return {"world_size": len(first), "hosts": first}


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


def _output(script: Path, program: str, options: str, environment: dict[str, str]) -> str:
    """What a script prints with these options in front of its own, up to PATIENCE: 5.0.11 now and then waits for ever when all
    its processes have ended."""
    with tempfile.TemporaryDirectory() as scratch:
        stand_ins = {
            "mpirun": f'#!/bin/sh\nexec {program} {options.format(ssh=f"{scratch}/ssh")} "$@"\n',
            "ssh": SSH,
            "python": PYTHON,
        }
        for name, text in stand_ins.items():
            (Path(scratch) / name).write_text(text)
            (Path(scratch) / name).chmod(0o755)
        named = environment | {"PATH": f"{scratch}:{environment['PATH']}", "PYTHON": f"{scratch}/python"}
        output = Path(scratch) / "output"
        with output.open("w") as file, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(["bash", str(script), "train.py"], env=named, stdout=file, stderr=file, timeout=PATIENCE)
        return output.read_text(errors="replace")


def _mapped(output: str) -> dict[str, str]:
    found, host = {}, ""
    for line in output.splitlines():
        node = re.search(r"Data for node: (\S+)", line)
        rank = re.search(r"Process rank: (\d+)|Data for proc: \[.*,(\d+)\]", line)
        host = node[1] if node else host
        if rank:
            found[rank[1] or rank[2]] = host
    return _by_rank(found, output)


def _started(output: str) -> dict[str, str]:
    found = {}
    for rank, host, script, cores in re.findall(r"rank (\d+) sent to (\S*) is of (\S*) with (\d+) cores", output):
        if host != script or int(cores) != len(os.sched_getaffinity(0)):
            raise ValueError(f"rank {rank} on {host} runs the script of {script} on {cores} cores")
        found[rank] = host
    return _by_rank(found, output)


def _by_rank(found: dict[str, str], output: str) -> dict[str, str]:
    if not found:
        raise ValueError(f"no rank is reported: {output[-500:]}")
    return dict(sorted(found.items(), key=lambda pair: int(pair[0])))
