"""Kubernetes: a JobSet with one replicated job per set of equal hosts of a cluster, or one per host if hosts have names.

Names and rules: JobSet v1alpha2 (kubernetes-sigs/jobset 08dfbdf, api/jobset/v1alpha2/jobset_types.go; pod names must be
DNS-1035 labels: pkg/webhooks/jobset_webhook.go), Kueue's annotations (kubernetes-sigs/kueue ff69552, site, "Topology Aware
Scheduling"). Pods take whole nodes and the host network, since the plan names the NICs of hosts. The pods of a job are not
bound to nodes, so all hosts of a job are equal and any of its nodes can be any of them. torchrun's node rank is the job's first
node rank plus the pod's index; the shim looks up the rank by the host that the pod represents.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from holmes_sim.launching import environment, folder, hosts, offload, torch_launch
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.hosts import Host
from planner.target import Vendors
from sim.formats import planfile
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TITLE = "Kubernetes (JobSet)"
READERS = "JobSet's CRD, kubectl kustomize, PyYAML, bash"
ORDER = 60
KIND = "launcher"
VENDORS: Vendors = "any"
EXCLUDED_VENDORS: tuple[str, ...] = ()
RESOURCE = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "huawei": "huawei.com/Ascend910"}
"""Vendor -> resource name in its device plug-in (NVIDIA/k8s-device-plugin, ROCm/k8s-device-plugin, Ascend's)."""
CLUSTER = "holmes-sim/cluster"
"""Node label, defined by holmes-sim: the cluster of the topology to which a node belongs."""
CONFIG_MAP_BYTES = 1 << 20
"""Maximum size of a ConfigMap (Kubernetes documentation, ConfigMaps)."""
OBJECT_BYTES = 3 << 19
"""Default maximum size of an etcd request (--max-request-bytes, 1.5 MiB)."""
NAME_LENGTH = 63
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
JOBSET, TASK, MAP = "jobset.yaml", "node.sh", "kustomization.yaml"
HOW = f"""\
Set the training script in `{TASK}` and the image that contains it in `{MAP}`, then:

```
kubectl apply -k FOLDER
```

With Kueue, uncomment `components` there and set the queue in `kueue/{MAP}`; its topology must have the node label
`{CLUSTER}` as a level. JobSet's controller must be installed. The first pod of the first job is the master; port
{torch_launch.PORT} must be free on its node."""


@dataclass(frozen=True, slots=True)
class Job:
    """Hosts of one replicated job: equal in cluster, environment and number of ranks. `first` is the node rank of the first."""

    name: str
    first: int
    hosts: tuple[Host, ...]
    environment: dict[str, str]

    @property
    def is_named(self) -> bool:
        """Whether its only host has a name in the topology."""
        return bool(self.hosts[0].cluster.hosts)

    @property
    def selector(self) -> tuple[str, str]:
        """The node label (key, value) that selects its nodes."""
        host = self.hosts[0]
        return ("kubernetes.io/hostname", host.name) if self.is_named else (CLUSTER, host.cluster.name)


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Nothing: it starts any program."""
    return iter(())


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Devices without a known resource name, names that Kubernetes rejects, and launches that exceed its size limits."""
    jobs = _jobs(plan)
    known = ", ".join(RESOURCE)
    for name in dict.fromkeys(job.hosts[0].cluster.name for job in jobs):
        vendor = plan.fleet.cluster(name).node.device.vendor
        if vendor not in RESOURCE:
            yield f"devices of {vendor} (cluster {name}): their resource has no known name; devices of {known}"
    for label in dict.fromkeys(job.selector for job in jobs):
        if not _LABEL.fullmatch(label[1]):
            yield f"{label[0]} {label[1]}: not a label; at most {NAME_LENGTH} letters, digits, '.', '_' and '-'"
    longest = max((f"{_name(plan)}-{job.name}-0-{len(job.hosts) - 1}" for job in jobs), key=len)
    if len(longest) > NAME_LENGTH:
        yield f"pod name {longest}: {len(longest)} characters; at most {NAME_LENGTH}, by shorter names of topology and cluster"
    mounted = sum(len(str(file.content).encode()) for file in _mounted(plan, jobs).values()) + len(
        planfile.to_json(plan).encode()
    )
    if mounted > CONFIG_MAP_BYTES:
        many = len(hosts.of_plan(plan))
        yield f"{many:,} hosts: {mounted:,} bytes of plan, rank table and shim; a ConfigMap holds {CONFIG_MAP_BYTES:,}"
    described = len(_jobset(plan, jobs))
    if described > OBJECT_BYTES:
        yield (
            f"{len(jobs)} jobs: {described:,} bytes; etcd takes {OBJECT_BYTES:,}, "
            "enough for a topology without `hosts`, whose clusters are one job each"
        )
    yield from environment.unsupported(plan)


def launch(plan: Plan) -> Launch:
    """The JobSet, the files that its pods mount, and the kustomization that combines them."""
    jobs = _jobs(plan)
    found = {
        JOBSET: File(_jobset(plan, jobs), "the JobSet: a replicated job for equal hosts, each pod a host"),
        MAP: File(_kustomization(plan), "the JobSet with its ConfigMap; names the image"),
        f"kueue/{MAP}": File(_kueue(jobs), "with Kueue: the queue, and each job inside one cluster"),
    }
    return Launch(found | _mounted(plan, jobs), HOW, (*_assumed(jobs), *torch_launch.assumed(plan)))


def _jobs(plan: Plan) -> list[Job]:
    """One job per named host; other hosts grouped by cluster, environment and number of ranks. The plan's first host comes
    first."""
    groups: dict[object, list[Host]] = {}
    environments = environment.Environments(plan)
    for host in hosts.of_plan(plan):
        given = tuple(environments.of_host(host).items())
        groups.setdefault(host.name if host.cluster.hosts else (host.cluster.name, len(host.ranks), given), []).append(host)
    firsts = itertools.accumulate((len(own) for own in groups.values()), initial=0)
    return [
        Job(f"{folder.safe(own[0].cluster.name).lower()}-{index}", first, tuple(own), environments.of_host(own[0]))
        for index, (own, first) in enumerate(zip(groups.values(), firsts, strict=False))
    ]


def _name(plan: Plan) -> str:
    """The JobSet's name, a DNS-1035 label: lower case, starting with a letter."""
    name = folder.safe(plan.topology.name).lower()
    return name if name[0].isalpha() else f"plan-{name}"


def _mounted(plan: Plan, jobs: list[Job]) -> dict[str, File]:
    task = _task(plan, jobs)
    told = "what every pod runs: finds its host in the plan and starts torchrun; names the script"
    return {TASK: File(task, told, True)} | torch_launch.shared_files(plan)


def _task(plan: Plan, jobs: list[Job]) -> str:
    name = _name(plan)
    return (
        "#!/usr/bin/env bash\n"
        "# Every pod: which host of the plan it is, then torchrun there.\n"
        "set -euo pipefail\n"
        "script=(train.py)  # the training script and its arguments, as they are in the image\n"
        "hosts=($HOLMES_HOSTS)\n"
        "export HOLMES_HOST=${hosts[JOB_COMPLETION_INDEX]}\n"
        f"{offload.threads(plan.config, 'HOLMES_RANKS')}"
        f'exec torchrun --nnodes={len(hosts.of_plan(plan))} --nproc-per-node="$HOLMES_RANKS" '
        "--node-rank=$((HOLMES_FIRST + JOB_COMPLETION_INDEX)) \\\n"
        f"  --master-addr={name}-{jobs[0].name}-0-0.{name} --master-port={torch_launch.PORT} "
        f'/holmes/{torch_launch.SHIM} "${{script[@]}}"\n'
    )


def _jobset(plan: Plan, jobs: list[Job]) -> str:
    return (
        "apiVersion: jobset.x-k8s.io/v1alpha2\n"
        "kind: JobSet\n"
        "metadata:\n"
        f"  name: {_name(plan)}\n"
        f'  annotations: {{holmes-sim/plan: "{planfile.digest(plan)}"}}\n'
        "spec:\n"
        "  network: {enableDNSHostnames: true}\n"
        "  replicatedJobs:\n"
        f"{''.join(_replicated(plan, job) for job in jobs)}"
    )


def _replicated(plan: Plan, job: Job) -> str:
    node = job.hosts[0].cluster.node.host
    own = {
        "HOLMES_HOSTS": " ".join(host.name for host in job.hosts),
        "HOLMES_FIRST": str(job.first),
        "HOLMES_RANKS": str(len(job.hosts[0].ranks)),
    }
    variables = "".join(
        f"              - {{name: {name}, value: {json.dumps(value)}}}\n" for name, value in (own | job.environment).items()
    )
    key, value = job.selector
    return (
        f"  - name: {job.name}\n"
        "    replicas: 1\n"
        "    template:\n"
        "      spec:\n"
        f"        parallelism: {len(job.hosts)}\n"
        f"        completions: {len(job.hosts)}\n"
        "        completionMode: Indexed\n"
        "        backoffLimit: 0\n"
        "        template:\n"
        "          spec:\n"
        "            restartPolicy: Never\n"
        "            hostNetwork: true\n"
        "            dnsPolicy: ClusterFirstWithHostNet\n"
        f"            nodeSelector: {{{key}: {json.dumps(value)}}}\n"
        "            containers:\n"
        "            - name: trainer\n"
        "              image: trainer\n"
        f"              command: [bash, /holmes/{TASK}]\n"
        "              env:\n"
        f"{variables}"
        f"              resources: {{limits: {{{RESOURCE.get(node.device.vendor, '')}: {node.count}}}}}\n"
        "              securityContext: {capabilities: {add: [IPC_LOCK]}}\n"
        "              volumeMounts: [{name: launch, mountPath: /holmes}, {name: shm, mountPath: /dev/shm}]\n"
        "            volumes:\n"
        f"            - {{name: launch, configMap: {{name: {_name(plan)}}}}}\n"
        "            - {name: shm, emptyDir: {medium: Memory}}\n"
    )


def _kustomization(plan: Plan) -> str:
    return (
        "apiVersion: kustomize.config.k8s.io/v1beta1\n"
        "kind: Kustomization\n"
        f"resources: [{JOBSET}]\n"
        "images:\n"
        "- {name: trainer, newName: registry.example/trainer, newTag: latest}  # the image with torch and the training script\n"
        "configMapGenerator:\n"
        f"- {{name: {_name(plan)}, files: [{TASK}, {torch_launch.SHIM}, {torch_launch.TABLE}, {folder.PLAN}]}}\n"
        "generatorOptions: {disableNameSuffixHash: true}\n"
        "# components: [kueue]\n"
    )


def _kueue(jobs: list[Job]) -> str:
    inside = "".join(
        f"    - op: add\n      path: /spec/replicatedJobs/{index}/template/spec/template/metadata\n"
        f"      value: {{annotations: {{kueue.x-k8s.io/podset-required-topology: {CLUSTER}}}}}\n"
        for index, job in enumerate(jobs)
        if not job.is_named
    )
    return (
        "apiVersion: kustomize.config.k8s.io/v1alpha1\n"
        "kind: Component\n"
        "patches:\n"
        "- target: {kind: JobSet}\n"
        "  patch: |\n"
        "    - op: add\n"
        "      path: /metadata/labels\n"
        "      value: {kueue.x-k8s.io/queue-name: training}  # the queue\n"
        f"{inside}"
    )


def _assumed(jobs: list[Job]) -> Iterator[str]:
    clusters = {job.hosts[0].cluster.name: job for job in jobs}
    for name, job in clusters.items():
        if not job.is_named:
            unkept = hosts.unconstrained(job.hosts[0].cluster)
            yield f"Nodes of {name} have the label `{CLUSTER}: {name}`, and each can be any of its hosts{unkept}."
    vendors = sorted({job.hosts[0].cluster.node.device.vendor for job in jobs})
    if len(vendors) > 1:
        both = " and ".join(vendors)
        yield f"One image serves {both}: if each has its own, set `image` of their jobs in {JOBSET}."
    yield "RDMA devices reach the pods by the site's own device plug-in: add its resource to `limits` where there is one."
