"""MPI: one mpirun line of Open MPI with a block for every run of ranks on one host.

mpirun numbers ranks block after block (open-mpi/ompi 4.1, orterun(1), "Application Context or Executable Program?"), so ranks
follow the plan whatever its placement. Every block names all slots of its host, since mpirun takes the blocks of one host as
one pool. What a block runs is its host's own script, which sets the environment: whether `-x` holds for its block or for all
differs from version to version (openpmix/prrte issue 607). There is no rank file: its lines must name CPU cores (`slot=`),
which no topology says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from holmes_sim import launching
from holmes_sim.launching import environment, hosts, torch_launch
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.hosts import Host
from sim.plan import Plan

TITLE = "Open MPI"
READERS = "Open MPI 4.1.4 and 5.0.11"
RANK, RUN = "holmes_mpi.py", "mpirun.sh"
HOW = f"""\
From a machine that reaches all hosts as mpirun does (ssh, or an allocation that has them), from the folder where the training
script is, with both folders on all hosts under one path:

```
bash FOLDER/{RUN} train.py ARGUMENTS
```

Options for mpirun itself go through its variables (`OMPI_MCA_...`). `PYTHON` is the interpreter on all hosts (the first
`python3` on the PATH unless set). Each process has RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as under torchrun,
and its rank is Open MPI's too. The first host is the master, by its name unless `MASTER_ADDR` says another; `MASTER_PORT`
(29500 unless set) must be free on it."""


def against(plan: Plan) -> Iterator[str]:
    """Hosts whose name mpirun would misread, and what NCCL's environment cannot say."""
    for host in hosts.of_plan(plan):
        if ":" in host.name:
            yield f"clusters.{host.cluster.name}.hosts {host.name}: mpirun reads slots behind `:`; a name without it"
    yield from environment.against(plan)


def launch(plan: Plan) -> Launch:
    """The mpirun line, environment and script of every host, rank table, shim, and what gives it Open MPI's rank."""
    own = hosts.of_plan(plan)
    found = {
        RUN: File(_run(own, plan.config.world_size), "the mpirun line: blocks of ranks in the plan's order", executable=True),
        RANK: File((Path(launching.__file__).parent / RANK).read_text(encoding="utf-8"), "torch's variables from Open MPI's"),
    }
    shared = torch_launch.files(plan)
    scripts = {
        f"launch/{host.name}.sh": File(_script(host), "what each process of one host runs", executable=True) for host in own
    }
    return Launch(found | shared | scripts, HOW, torch_launch.assumed(plan))


def _run(own: tuple[Host, ...], world_size: int) -> str:
    host_of = {rank: host for host in own for rank in host.ranks}
    runs = [(host, len(list(ranks))) for host, ranks in itertools.groupby(range(world_size), key=host_of.__getitem__)]
    blocks = " : \\\n".join(
        f'  -np {size} -host {host.name}:{len(host.ranks)} $all bash "$here"/launch/{host.name}.sh "$@"' for host, size in runs
    )
    return (
        "#!/usr/bin/env bash\n"
        f"# {world_size} ranks on {len(own)} hosts, in the plan's order: a block for each run of ranks on one host\n"
        "set -euo pipefail\n"
        'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\n'
        "export PYTHON=${PYTHON:-$(command -v python3)}\n"
        f"export MASTER_ADDR=${{MASTER_ADDR:-{own[0].name}}} MASTER_PORT=${{MASTER_PORT:-{torch_launch.PORT}}}\n"
        'all="-x PYTHON -x MASTER_ADDR -x MASTER_PORT"\n'
        f"exec mpirun --bind-to none \\\n{blocks}\n"
    )


def _script(host: Host) -> str:
    ranks = ", ".join(map(str, host.ranks))
    return (
        "#!/usr/bin/env bash\n"
        f"# {host.node}: one of ranks {ranks}\n"
        "set -euo pipefail\n"
        'here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)\n'
        f'source "$here"/env/{host.name}.env\n'
        f'exec "$PYTHON" "$here"/{RANK} "$@"\n'
    )
