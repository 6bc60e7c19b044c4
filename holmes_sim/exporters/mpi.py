"""MPI: one Open MPI mpirun command with a block for every run of consecutive ranks on a host, and an equivalent rankfile.

mpirun numbers ranks block after block (open-mpi/ompi 4.1, orterun(1), "Application Context or Executable Program?"), so ranks
follow the plan for any placement. Every block lists all slots of its host, since mpirun pools the blocks of one host. A block
runs the script of its host, which sets the environment: whether `-x` applies to its block or to all blocks depends on the
version (openpmix/prrte issue 607).

With the rankfile one block covers all ranks, and each process finds the script of its host by its rank. Rankfile lines name CPU
cores (`slot=`), which a topology does not specify. Under `--bind-to none` Open MPI 5 uses only the host of a line
(openpmix/prrte, rmaps_rank_file.c), and requires the hosts to be listed as well. It misreads a path that contains `pe` as its
option PE (5.0.11), so the file is passed as /dev/fd/3. Version 4.1.4 binds to the core even with `--bind-to none`, so its
spelling (`--rankfile`) is not written. Slots are numbered per host, so that without `--bind-to none` no two processes share a
core.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from holmes_sim import launching
from holmes_sim.launching import environment, hosts, torch_launch
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.hosts import Host
from planner.target import Vendors
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TITLE = "Open MPI"
READERS = "Open MPI 4.1.4 and 5.0.11"
ORDER = 70
KIND = "launcher"
VENDORS: Vendors = "any"
EXCLUDED_VENDORS: tuple[str, ...] = ()
RANK, RUN = "holmes_mpi.py", "mpirun.sh"
RANKFILE, RUN_BY_RANKFILE, SCRIPT_OF_RANK = "rankfile", "mpirun-rankfile.sh", "rank.sh"
HOW = f"""\
From a machine that reaches all hosts as mpirun does (ssh, or an allocation that has them), from the folder where the training
script is, with both folders on all hosts under one path:

```
bash FOLDER/{RUN} train.py ARGUMENTS
```

Options for mpirun itself go through its variables (`OMPI_MCA_...`). `PYTHON` is the interpreter on all hosts (the first
`python3` on the PATH unless set). Each process has RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as under torchrun,
and its rank is Open MPI's too. The first host is the master, by its name unless `MASTER_ADDR` says another; `MASTER_PORT`
(29500 unless set) must be free on it.

`{RUN_BY_RANKFILE}` launches the same by `{RANKFILE}`, one block for all ranks: where ranks that alternate between hosts make
too many blocks, or as a start for an mpirun line of your own (name the hosts; 5.0.11 misreads `rankfile:file=PATH` where PATH
has `pe` in it). It needs Open MPI 5: version 4.1 binds each process to the one core that its line names, even under
`--bind-to none`."""


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Nothing: it starts any program."""
    return iter(())


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Host names that mpirun would misread, and what NCCL's environment cannot express."""
    for host in hosts.of_plan(plan):
        if ":" in host.name:
            yield f"clusters.{host.cluster.name}.hosts {host.name}: mpirun reads slots behind `:`; a name without it"
    yield from environment.unsupported(plan)


def launch(plan: Plan) -> Launch:
    """mpirun commands by blocks and by rankfile, environment and script of every host, rank table, and the shims."""
    own = hosts.of_plan(plan)
    found = {
        RUN: File(_run(own, plan.config.world_size), "the mpirun line: blocks of ranks in the plan's order", executable=True),
        RUN_BY_RANKFILE: File(_run_by_rankfile(own, plan.config.world_size), "the mpirun line by rankfile", executable=True),
        RANKFILE: File(_rankfile(own, plan.config.world_size), "the host of every rank"),
        SCRIPT_OF_RANK: File(_script_of_rank(), "what each process runs that was mapped by rankfile", executable=True),
        RANK: File((Path(launching.__file__).parent / RANK).read_text(encoding="utf-8"), "torch's variables from Open MPI's"),
    }
    shared = torch_launch.files(plan)
    scripts = {
        f"launch/{host.name}.sh": File(_script(host), "what each process of one host runs", executable=True) for host in own
    }
    return Launch(found | shared | scripts, HOW, torch_launch.assumed(plan))


def _run(own: tuple[Host, ...], world_size: int) -> str:
    host_of = _host_of(own)
    runs = [(host, len(list(ranks))) for host, ranks in itertools.groupby(range(world_size), key=host_of.__getitem__)]
    blocks = " : \\\n".join(
        f'  -np {size} -host {host.name}:{len(host.ranks)} $all bash "$here"/launch/{host.name}.sh "$@"' for host, size in runs
    )
    how = "in the plan's order: a block for each run of ranks on one host"
    return f"{_head(own, world_size, how)}exec mpirun --bind-to none \\\n{blocks}\n"


def _run_by_rankfile(own: tuple[Host, ...], world_size: int) -> str:
    slots = ",".join(f"{host.name}:{len(host.ranks)}" for host in own)
    return (
        f"{_head(own, world_size, 'each where the rankfile has it (Open MPI 5)')}"
        f"exec mpirun --bind-to none --map-by rankfile:file=/dev/fd/3 \\\n"
        f'  -np {world_size} -host {slots} $all bash "$here"/{SCRIPT_OF_RANK} "$@" 3< "$here"/{RANKFILE}\n'
    )


def _head(own: tuple[Host, ...], world_size: int, how: str) -> str:
    return (
        "#!/usr/bin/env bash\n"
        f"# {world_size} ranks on {len(own)} hosts, {how}\n"
        "set -euo pipefail\n"
        'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\n'
        "export PYTHON=${PYTHON:-$(command -v python3)}\n"
        f"export MASTER_ADDR=${{MASTER_ADDR:-{own[0].name}}} MASTER_PORT=${{MASTER_PORT:-{torch_launch.PORT}}}\n"
        'all="-x PYTHON -x MASTER_ADDR -x MASTER_PORT"\n'
    )


def _host_of(own: tuple[Host, ...]) -> dict[int, Host]:
    return {rank: host for host in own for rank in host.ranks}


def _rankfile(own: tuple[Host, ...], world_size: int) -> str:
    host_of = _host_of(own)
    hosts_of_ranks = ((rank, host_of[rank]) for rank in range(world_size))
    return "".join(f"rank {rank}={host.name} slot={host.ranks.index(rank)}\n" for rank, host in hosts_of_ranks)


def _script_of_rank() -> str:
    return (
        "#!/usr/bin/env bash\n"
        "# the script of the host that the rankfile gives this process's rank\n"
        "set -euo pipefail\n"
        'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\n'
        f'host=$(sed -n "s/^rank $OMPI_COMM_WORLD_RANK=\\(.*\\) slot=.*/\\1/p" "$here"/{RANKFILE})\n'
        'exec bash "$here/launch/$host.sh" "$@"\n'
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
