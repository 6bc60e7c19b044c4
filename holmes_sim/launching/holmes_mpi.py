"""Be the rank that Open MPI says: torch's variables from its own, then on as holmes_launch.py.

    mpirun ... holmes_mpi.py train.py ARGUMENTS

The local rank is the plan's (the device of the rank), not Open MPI's, which numbers a host's processes by rank. Written by
holmes-sim beside holmes_launch.py and ranks.json; needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Set the variables, then start the shim in this process."""
    here = Path(__file__).parent
    table = json.loads((here / "ranks.json").read_text(encoding="utf-8"))
    try:
        os.environ.update(variables(table, dict(os.environ)))
    except ValueError as error:
        sys.exit(f"holmes_mpi: {error}")
    runpy.run_path(str(here / "holmes_launch.py"), run_name="__main__")


def variables(table: dict[str, Any], environment: dict[str, str]) -> dict[str, str]:
    """What torchrun would set. HOLMES_SCRIPT has the shim check that the process is on the rank's host. Raises ValueError."""
    if "OMPI_COMM_WORLD_RANK" not in environment:
        raise ValueError("OMPI_COMM_WORLD_RANK is not set: start it by Open MPI's mpirun")
    rank = int(environment["OMPI_COMM_WORLD_RANK"])
    for index, host in enumerate(table["hosts"]):
        if rank in host["ranks"]:
            return {
                "WORLD_SIZE": environment["OMPI_COMM_WORLD_SIZE"],
                "LOCAL_RANK": str(host["ranks"].index(rank)),
                "LOCAL_WORLD_SIZE": str(len(host["ranks"])),
                "GROUP_RANK": str(index),
                "HOLMES_SCRIPT": host["host"],
            }
    raise ValueError(f"rank {rank} is not in the plan, which has {table['world_size']} ranks")


if __name__ == "__main__":
    main()
