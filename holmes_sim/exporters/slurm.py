"""Slurm: a batch job with one component per cluster of the plan, and one task per node that starts torchrun.

A heterogeneous job (`#SBATCH hetjob`; SchedMD/slurm 26.11, doc/html/heterogeneous_jobs.shtml) is the only form for clusters
with different partitions, features or devices per node; a single cluster is a plain job. Nodes are requested by name if the
topology names the hosts, otherwise by a feature with the name of their cluster.

Slurm sorts the nodes of a job, and `--distribution=arbitrary` excludes several of its plug-ins (doc/man/man1/srun.1), so no
order is requested: a task looks up which host of the plan its node is, and the script of that host sets the node rank. A named
node is the host of that name. Any other node is the host at its task's number, which is consecutive over components.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holmes_sim.exporters import torchrun
from holmes_sim.launching import environment, folder, hosts, torch_launch
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.hosts import Host, Placed
from planner.target import Vendors
from sim.disaggregation.plan import DisaggregatedPlan
from sim.errors import NotSupported
from sim.formats import hostlist
from sim.plan.parallel_config import ParallelConfig
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TITLE = "Slurm"
READERS = "Slurm 22.05.8 (slurmctld and slurmd), bash -n"
RUN_TITLE = "Slurm and holmes-sim run"
RUN_READERS = f"bash -n; {READERS} has read job scripts of other plans; none of this kind was run"
ORDER = 20
KIND = "launcher"
VENDORS: Vendors = "any"
EXCLUDED_VENDORS: tuple[str, ...] = ()
JOB, TASK = "job.sbatch", "node.sh"
MOST = 128
"""Maximum number of components of a job (slurm/slurm.h, MAX_HET_JOB_COMPONENTS)."""
HOW = f"""\
With this folder where all nodes see it, from this folder:

```
sbatch {JOB} {{words}}
```

From elsewhere, set its path: `HOLMES_FOLDER=/path/to/it sbatch /path/to/it/{JOB} ...`. Partition, account and time are
yours: write them into the `#SBATCH` lines of each component, or set `SBATCH_PARTITION`, `SBATCH_ACCOUNT`, `SBATCH_TIMELIMIT`
for all of them. `{TASK}` runs once on every node; a container is started there. The first host is the master, by its name
unless `MASTER_ADDR` says another; `MASTER_PORT` (29500 unless set) must be free on it."""


PROGRAM, OPTIONS = "/path/to/train.py ARGUMENTS", "--steps 3"
"""What a job script takes: a program, or options of `holmes-sim run`."""


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Nothing: it starts any program."""
    return iter(())


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """More clusters than a job can have components, and what NCCL's environment cannot express."""
    yield from _too_many(plan)
    yield from environment.unsupported(plan)


def _too_many(plan: Placed) -> Iterator[str]:
    clusters = len(_components(plan))
    if clusters > MOST:
        yield f"{clusters} clusters: a heterogeneous job has at most {MOST} components; a plan on fewer clusters"


def launch(plan: Plan) -> Launch:
    """The batch script, the script of every node, and torchrun's files."""
    components, found = _scripts(plan)
    how = HOW.format(words=PROGRAM)
    return Launch(found | torch_launch.files(plan), how, (*_assumed(components), *torch_launch.assumed(plan)))


def run_launch(plan: PipelinesPlan | DisaggregatedPlan) -> Launch:
    """The batch script, the script of every node, and those of every host that start `holmes-sim run` by torchrun. Raises
    NotSupported as `torchrun.run_launch` does."""
    if faults := list(_too_many(plan)):
        raise NotSupported(f"slurm cannot express {faults[0]}")
    components, found = _scripts(plan)
    return Launch(found | torchrun.run_launch(plan).files, HOW.format(words=OPTIONS), tuple(_assumed(components)))


def _scripts(plan: Placed) -> tuple[list[tuple[Host, ...]], dict[str, File]]:
    """The components of the job, and the two scripts of Slurm."""
    components = _components(plan)
    found = {
        JOB: File(_job(plan, components), "the batch job: one component a cluster, then one task a node", executable=True),
        TASK: File(_task(components), "what each node runs: finds its host in the plan and starts that host's script", True),
    }
    return components, found


def _components(plan: Placed) -> list[tuple[Host, ...]]:
    """Hosts of each cluster, the first host's cluster first: Slurm numbers tasks in this order."""
    by_cluster: dict[str, list[Host]] = {}
    for host in hosts.of_plan(plan):
        by_cluster.setdefault(host.cluster.name, []).append(host)
    return [tuple(own) for own in by_cluster.values()]


def _size(component: tuple[Host, ...]) -> str:
    """Options that job and step share. GRES are requested for NVIDIA and AMD only; other vendors have site-specific names."""
    node = component[0].cluster.node.host
    devices = f" --gpus-per-node={node.count}" if _has_gpus(component) else ""
    return f"--nodes={len(component)} --ntasks-per-node=1{devices}"


def _has_gpus(component: tuple[Host, ...]) -> bool:
    return component[0].cluster.node.device.vendor in ("nvidia", "amd")


def _where(component: tuple[Host, ...]) -> str:
    if component[0].cluster.hosts:
        return f"--nodelist={','.join(_listed([host.name for host in component]))}"
    return f"--constraint={component[0].cluster.name}"


def _listed(names: list[str]) -> Iterable[str]:
    """Host names, compressed where Slurm accepts that: it rejects a suffix after brackets (`scontrol show hostnames
    gpu[1-2].site`, 22.05.8)."""
    short = hostlist.compress(names)
    return names if any("]" in item and not item.endswith("]") for item in short) else short


def _job(plan: Placed, components: list[tuple[Host, ...]]) -> str:
    requests = "#SBATCH hetjob\n".join(
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
        f"{requests}"
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
    """The script of a node: it finds its host by the node's name if the topology names hosts, otherwise by
    the task's number."""
    named = [bool(component[0].cluster.hosts) for component in components]
    if all(named):
        which = "export HOLMES_HOST=$SLURMD_NODENAME\n"
    else:
        names = ["''" if own else host.name for own, component in zip(named, components, strict=True) for host in component]
        which = (
            f"hosts=({' '.join(names)})  # by task{'; empty: by name' if any(named) else ''}\n"
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
            name, unkept = cluster.name, hosts.unconstrained(cluster)
            yield f"Nodes of {name} have Slurm's feature `{name}`, and each can be any of its hosts{unkept}."
        if not _has_gpus(component):
            yield (
                f"Nodes of {cluster.name} are taken whole (--exclusive); what Slurm calls their devices is the site's own: "
                "add it as --gres where the site wants it."
            )
