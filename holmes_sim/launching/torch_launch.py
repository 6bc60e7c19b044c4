"""Launches by torchrun: an environment file and a script for every host, the rank table, and the shim.

Static rendezvous fixes the order of hosts; the c10d rendezvous ignores --node-rank and sorts hosts by name
(torch/distributed/elastic/rendezvous/dynamic_rendezvous.py). The shim sets RANK, so that ranks of a host need not be
consecutive.

The shim is copied to clusters as a single file. It uses two private names of torch, because torch 2.13 has no public
equivalents: `ProcessGroup._get_backend(device).options`, the NCCL options of an existing group, which its parts inherit; and
`ProcessGroupNCCL.Options._timeout`, without which `new_group` warns that the timeout of the options differs from its argument.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from holmes_sim.launching import environment, hosts, offload
from holmes_sim.launching.environment import Environments
from holmes_sim.launching.folder import File
from holmes_sim.launching.hosts import Host
from holmes_sim.launching.nets import VERBS
from sim.formats import planfile
from sim.hardware.cluster import Cluster, Fleet
from sim.hardware.transport import trunk_path
from sim.plan.plan import Plan

SHIM, TABLE = "holmes_launch.py", "ranks.json"
IMPORTABLE = 'export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"\n'
"""Line of a script for launches whose modules are in the launch folder: `python -m` looks in the current folder only."""
PORT = 29500
"""torchrun's default port (torch/distributed/run.py)."""
HOW = """\
On every host, from the folder where the training script is, with this folder on all of them under one path:

```
bash FOLDER/launch/HOST.sh {words}
```

with the host's own script. The first host is the master, by its name unless `MASTER_ADDR` says another; `MASTER_PORT` (29500
unless set) must be free on it. torchrun waits 15 minutes for all hosts. Each script loads its host's `env/*.env` and starts
torchrun with static rendezvous; `holmes_launch.py` checks the host against the plan, sets the rank and the network of every
process group, and runs the script. In containers set `HOLMES_HOST` to the host's name in the plan."""


def files(
    plan: Plan, entry: str = '"$@"', more: dict[str, str] | None = None, setup: str = "", folder: str = "launch"
) -> dict[str, File]:
    """The files of a launch.

    - `entry`: shell words after the shim on torchrun's command line.
    - `more`: additional environment variables.
    - `setup`: lines that each script runs before torchrun.
    - `folder`: folder of the scripts.
    """
    found = shared_files(plan)
    all_hosts, environments = hosts.of_plan(plan), Environments(plan)
    for index, host in enumerate(all_hosts):
        variables = environments.of_host(host) | (more or {}) | {"HOLMES_SCRIPT": host.name}
        threads = offload.threads(plan.config, str(len(host.ranks)))
        found[f"env/{host.name}.env"] = File(environment.text(variables) + threads, "environment of one host")
        script = _script(all_hosts, index, entry, setup)
        found[f"{folder}/{host.name}.sh"] = File(script, "starts the ranks of one host", executable=True)
    return found


def shared_files(plan: Plan) -> dict[str, File]:
    """The two files that are the same on all hosts: the shim, and the table of ranks and fabrics that it reads."""
    return {
        SHIM: File((Path(__file__).parent / SHIM).read_text(encoding="utf-8"), "sets the rank and the network of each group"),
        TABLE: File(table(plan), "which ranks each host has, and which fabrics join it"),
    }


def line(all_hosts: tuple[Host, ...], index: int, node_rank: str | None = None) -> str:
    """torchrun's command line for a host of the plan. `node_rank` is a shell word for launchers that know the node rank only at
    run time."""
    host = all_hosts[index]
    rank = str(index) if node_rank is None else node_rank
    return (
        f"torchrun --nnodes={len(all_hosts)} --nproc-per-node={len(host.ranks)} --node-rank={rank} "
        f'--master-addr="${{MASTER_ADDR:-{all_hosts[0].name}}}" --master-port="${{MASTER_PORT:-{PORT}}}"'
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
        f'python3 "$here"/{SHIM} --check\n'
        f"{setup}"
        f'exec {line(all_hosts, index)} "$here"/{SHIM} {entry}\n'
    )


def table(plan: Plan) -> str:
    """ranks.json: hosts in order, with the ranks, devices and vendor of each, and its RDMA fabrics with the bytes per second of
    its NICs there.

    `sim.hardware.transport.common_transport` uses the fastest fabric that all hosts share. A fabric whose NICs are not in
    NCCL_IB_HCA is left out: NCCL would use NICs of the other type instead.
    """
    environments = Environments(plan)
    fabrics = fabrics_of(plan.fleet)
    rows = [
        {
            "host": host.name, "node": host.node, "ranks": list(host.ranks), "devices": list(host.devices),
            "vendor": host.cluster.node.device.vendor, "fabrics": _open(environments, host, fabrics),
        }
        for host in hosts.of_plan(plan)
    ]  # fmt: skip
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    unified = json.dumps(plan.fleet.communicator == "unified")
    return (
        f'{{\n  "plan": "{planfile.digest(plan)}",\n  "world_size": {plan.config.world_size},\n  "unified": {unified},\n'
        f'  "hosts": [\n{lines}\n  ]\n}}\n'
    )


def _open(environments: Environments, host: Host, fabrics: dict[str, dict[str, float]]) -> dict[str, float]:
    listed = [kind for kind in environments.open_kinds(host) if kind in VERBS]
    left_out = [kind for kind in VERBS if listed and kind not in listed]
    return {name: rate for name, rate in fabrics[host.cluster.name].items() if name.rsplit("-", 1)[0] not in left_out}


def fabrics_of(fleet: Fleet) -> dict[str, dict[str, float]]:
    """Cluster -> its RDMA fabrics by name (`infiniband-0`), with the bytes per second of a host's NICs there. Clusters that a
    trunk joins are on the same fabric."""
    known: dict[str, list[Cluster]] = {}
    found: dict[str, dict[str, float]] = {}
    for cluster in fleet.clusters:
        found[cluster.name] = {}
        for nic in (nic for nic in cluster.node.host.nics if nic.spec.rdma):
            first = known.setdefault(nic.kind, [])
            paths = (trunk_path(fleet, other.name, cluster.name, nic.kind) for other in first)
            index = next((index for index, path in enumerate(paths) if path is not None), len(first))
            if index == len(first):
                first.append(cluster)
            rate = nic.bandwidth * nic.count * nic.reached("send_recv")
            found[cluster.name][f"{nic.kind}-{index}"] = rate
    return found


def assumed(plan: Plan) -> tuple[str, ...]:
    """Requirements on the training script."""
    all_hosts = hosts.of_plan(plan)
    lines = []
    if not hosts.in_order(all_hosts) or hosts.per_host(all_hosts) is None:
        lines.append(
            "The script takes its device from LOCAL_RANK (`torch.cuda.set_device`) and gives barriers their `device_ids`: "
            "ranks are not consecutive on every host, or hosts have different numbers of them: RANK modulo devices is wrong."
        )
    vendors = sorted({host.cluster.node.device.vendor for host in all_hosts})
    if len(vendors) > 1 and plan.fleet.communicator == "unified":
        lines.append(f"Groups across {' and '.join(vendors)} need the unified communicator's own backend, named by the script.")
    elif len(vendors) > 1:
        lines.append(
            f"Groups across {' and '.join(vendors)} go over gloo, which takes tensors of devices in all_reduce and broadcast "
            "only (torch's table of backends): the script copies others, pipeline messages too, to the host."
        )
    return tuple(lines)
