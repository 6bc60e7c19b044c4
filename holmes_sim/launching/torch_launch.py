"""Launches by torchrun: an environment file and a script for every host, the rank table, and the shim.

Static rendezvous pins the order of hosts; c10d's ignores --node-rank and sorts hosts by name
(torch/distributed/elastic/rendezvous/dynamic_rendezvous.py). The shim sets RANK: a host's ranks need not be consecutive.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from holmes_sim.launching import environment, hosts
from holmes_sim.launching.folder import File
from holmes_sim.launching.hosts import Host
from sim import planfile
from sim.cluster import Cluster, trunk_path
from sim.plan import Plan

SHIM, TABLE = "holmes_launch.py", "ranks.json"
PORT = 29500
"""torchrun's own default (torch/distributed/run.py)."""
HOW = """\
On every host, from the folder where the training script is, with this folder on all of them under one path:

```
bash FOLDER/launch/$(hostname -s).sh {words}
```

The first host is the master; `MASTER_PORT` (29500 unless set) must be free on it. Each script loads its host's `env/*.env`
and starts torchrun with static rendezvous; `holmes_launch.py` checks the host against the plan, sets the rank and the network
of every process group, and runs the script. In containers set `HOLMES_HOST` to the host's name in the plan."""


def files(
    plan: Plan, entry: str = '"$@"', more: dict[str, str] | None = None, setup: str = "", folder: str = "launch"
) -> dict[str, File]:
    """The files of a launch: `entry` is what follows the shim on torchrun's line (shell words), `more` further variables.

    `setup` holds lines that each script runs before torchrun, `folder` is where the scripts stand."""
    found = {
        SHIM: File((Path(__file__).parent / SHIM).read_text(encoding="utf-8"), "sets the rank and the network of each group"),
        TABLE: File(table(plan), "which ranks each host has, and which fabrics join it"),
    }
    all_hosts = hosts.of_plan(plan)
    for index, host in enumerate(all_hosts):
        variables = environment.of_host(plan, host) | (more or {}) | {"HOLMES_SCRIPT": host.name}
        found[f"env/{host.name}.env"] = File(environment.text(variables), "environment of one host")
        script = _script(all_hosts, index, entry, setup)
        found[f"{folder}/{host.name}.sh"] = File(script, "starts the ranks of one host", executable=True)
    return found


def line(all_hosts: tuple[Host, ...], index: int, node_rank: str | None = None) -> str:
    """torchrun's own words for a host of the plan; `node_rank` is a shell word where the launcher knows it better."""
    host = all_hosts[index]
    rank = str(index) if node_rank is None else node_rank
    return (
        f"torchrun --nnodes={len(all_hosts)} --nproc-per-node={len(host.ranks)} --node-rank={rank} "
        f'--master-addr={shlex.quote(all_hosts[0].name)} --master-port="${{MASTER_PORT:-{PORT}}}"'
    )


def _script(all_hosts: tuple[Host, ...], index: int, entry: str, setup: str) -> str:
    host = all_hosts[index]
    name = shlex.quote(host.name)
    return (
        "#!/usr/bin/env bash\n"
        f"# {host.node}: ranks {', '.join(map(str, host.ranks))}\n"
        "set -euo pipefail\n"
        'here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)\n'
        f'source "$here"/env/{name}.env\n'
        f"{setup}"
        f'exec {line(all_hosts, index)} "$here"/{SHIM} {entry}\n'
    )


def table(plan: Plan) -> str:
    """ranks.json: the hosts in order, the ranks and devices of each, its vendor and the RDMA fabrics that it is on."""
    fabrics = fabrics_of(plan)
    rows = [
        {
            "host": host.name, "node": host.node, "ranks": list(host.ranks), "devices": list(host.devices),
            "vendor": host.cluster.node.device.vendor, "fabrics": list(fabrics[host.cluster.name]),
        }
        for host in hosts.of_plan(plan)
    ]  # fmt: skip
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    unified = json.dumps(plan.fleet.communicator == "unified")
    return (
        f'{{\n  "plan": "{planfile.digest(plan)}",\n  "world_size": {plan.config.world_size},\n  "unified": {unified},\n'
        f'  "hosts": [\n{lines}\n  ]\n}}\n'
    )


def fabrics_of(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Cluster -> its RDMA fabrics by name (`infiniband-0`): clusters are on the same one where a trunk joins them."""
    known: dict[str, list[Cluster]] = {}
    found: dict[str, tuple[str, ...]] = {}
    for cluster in plan.fleet.clusters:
        names = []
        for nic in cluster.node.nics:
            if not nic.spec.rdma:
                continue
            first = known.setdefault(nic.kind, [])
            joined = (
                i for i, other in enumerate(first) if trunk_path(plan.fleet, other.name, cluster.name, nic.kind) is not None
            )
            index = next(joined, None)
            if index is None:
                first.append(cluster)
                index = len(first) - 1
            names.append(f"{nic.kind}-{index}")
        found[cluster.name] = tuple(names)
    return found
