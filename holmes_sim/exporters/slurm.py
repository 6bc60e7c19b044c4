"""Slurm: a batch job with one component for each cluster of the plan, and one task a node that starts torchrun there.

A heterogeneous job (`#SBATCH hetjob`; SchedMD/slurm 26.11, doc/html/heterogeneous_jobs.shtml) is the one form that holds
clusters with other partitions, features or devices a node; one cluster alone is a plain job. Nodes are asked for by name where
the topology names the hosts, else by a feature called like their cluster.

Slurm sorts the nodes of a job, and `--distribution=arbitrary` excludes several of its plug-ins (doc/man/man1/srun.1), so no
order is asked of it: a task looks up which host of the plan its node is, and that host's own script says its node rank. A named
node is the host of that name; any other plays the host at its task's number, which runs through component after component.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holmes_sim.launching import environment, folder, hosts, torch_launch
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.hosts import Host
from sim.formats import hostlist
from sim.plan.plan import Plan

TITLE = "Slurm"
READERS = "Slurm 22.05.8 (slurmctld and slurmd), bash -n"
JOB, TASK = "job.sbatch", "node.sh"
MOST = 128
"""Components of a job (slurm/slurm.h, MAX_HET_JOB_COMPONENTS)."""
HOW = f"""\
With this folder where all nodes see it, from this folder:

```
sbatch {JOB} /path/to/train.py ARGUMENTS
```

From elsewhere, say where it lies: `HOLMES_FOLDER=/path/to/it sbatch /path/to/it/{JOB} ...`. Partition, account and time are
yours: write them into the `#SBATCH` lines of each component, or set `SBATCH_PARTITION`, `SBATCH_ACCOUNT`, `SBATCH_TIMELIMIT`
for all of them. `{TASK}` runs once on every node; a container is started there. The first host is the master, by its name
unless `MASTER_ADDR` says another; `MASTER_PORT` (29500 unless set) must be free on it."""


def against(plan: Plan) -> Iterator[str]:
    """More clusters than a job has components, and what NCCL's environment cannot say."""
    clusters = len(_components(plan))
    if clusters > MOST:
        yield f"{clusters} clusters: a heterogeneous job has at most {MOST} components; a plan on fewer clusters"
    yield from environment.against(plan)


def launch(plan: Plan) -> Launch:
    """The batch script, what every node runs, and torchrun's files."""
    components = _components(plan)
    found = {
        JOB: File(_job(plan, components), "the batch job: one component a cluster, then one task a node", executable=True),
        TASK: File(_task(components), "what each node runs: finds its host in the plan and starts that host's script", True),
    }
    return Launch(found | torch_launch.files(plan), HOW, (*_assumed(components), *torch_launch.assumed(plan)))


def _components(plan: Plan) -> list[tuple[Host, ...]]:
    """Hosts of each cluster, the first host's cluster first: Slurm numbers tasks in this order."""
    by_cluster: dict[str, list[Host]] = {}
    for host in hosts.of_plan(plan):
        by_cluster.setdefault(host.cluster.name, []).append(host)
    return [tuple(own) for own in by_cluster.values()]


def _size(component: tuple[Host, ...]) -> str:
    """Options that job and step share. A vendor other than NVIDIA's and AMD's has GRES of the site's own name."""
    node = component[0].cluster.node
    devices = f" --gpus-per-node={node.count}" if _has_gpus(component) else ""
    return f"--nodes={len(component)} --ntasks-per-node=1{devices}"


def _has_gpus(component: tuple[Host, ...]) -> bool:
    return component[0].cluster.node.device.vendor in ("nvidia", "amd")


def _where(component: tuple[Host, ...]) -> str:
    if component[0].cluster.hosts:
        return f"--nodelist={','.join(_listed([host.name for host in component]))}"
    return f"--constraint={component[0].cluster.name}"


def _listed(names: list[str]) -> Iterable[str]:
    """Slurm takes no letters behind the brackets: `scontrol show hostnames gpu[1-2].site` (22.05.8) is an invalid hostlist."""
    short = hostlist.compress(names)
    return names if any("]" in item and not item.endswith("]") for item in short) else short


def _job(plan: Plan, components: list[tuple[Host, ...]]) -> str:
    asked = "#SBATCH hetjob\n".join(
        f"#SBATCH {_size(component)} --exclusive --mem=0\n#SBATCH {_where(component)}\n" for component in components
    )
    several = len(components) > 1
    steps = " : \\\n".join(
        f'  {f"--het-group={index} " if several else ""}{_size(component)} $all bash "$here"/{TASK} "$@"'
        for index, component in enumerate(components)
    )
    named = components[0][0].cluster.hosts
    master = "" if named else "export MASTER_ADDR=${MASTER_ADDR:-$SLURMD_NODENAME}  # this runs on the first node\n"
    return (
        "#!/usr/bin/env bash\n"
        f"#SBATCH --job-name={folder.safe(plan.topology.name)}\n"
        f"{asked}"
        "set -euo pipefail\n"
        "here=${HOLMES_FOLDER:-$SLURM_SUBMIT_DIR}\n"
        f'if [ ! -f "$here"/{TASK} ]; then\n'
        f'  echo "$here has no {TASK}: submit from the folder of the launch, or set HOLMES_FOLDER" >&2\n'
        "  exit 2\n"
        "fi\n"
        f"{master}"
        'all="--kill-on-bad-exit=1 --cpu-bind=none"  # the one task of a node has all its CPUs\n'
        f"srun \\\n{steps}\n"
    )


def _task(components: list[tuple[Host, ...]]) -> str:
    """Where the topology names hosts, the node's name; else the host at the task's number."""
    named = [bool(component[0].cluster.hosts) for component in components]
    if all(named):
        which = "export HOLMES_HOST=$SLURMD_NODENAME\n"
    else:
        places = ["''" if own else host.name for own, component in zip(named, components, strict=True) for host in component]
        which = (
            f"hosts=({' '.join(places)})  # by task{'; empty: by name' if any(named) else ''}\n"
            f"export HOLMES_HOST=${{hosts[SLURM_PROCID]{':-$SLURMD_NODENAME' if any(named) else ''}}}\n"
        )
    return (
        "#!/usr/bin/env bash\n"
        "# One task on every node: which host of the plan this node is, then that host's launch.\n"
        "set -euo pipefail\n"
        'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\n'
        f"{which}"
        'exec bash "$here/launch/$HOLMES_HOST.sh" "$@"\n'
    )


def _assumed(components: list[tuple[Host, ...]]) -> Iterator[str]:
    for component in components:
        cluster = component[0].cluster
        if not cluster.hosts:
            leaf = "; the leaf of the fabric that a node is on is not asked for" if cluster.fabric else ""
            yield f"Nodes of {cluster.name} bear Slurm's feature `{cluster.name}`, and each can play any of its hosts{leaf}."
        if not _has_gpus(component):
            yield (
                f"Nodes of {cluster.name} are taken whole (--exclusive); what Slurm calls their devices is the site's own: "
                "add it as --gres where the site wants it."
            )
