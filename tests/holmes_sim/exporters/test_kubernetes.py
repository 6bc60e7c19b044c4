"""Every pod of a JobSet is one host of the plan; the keys are those that Kubernetes knows."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from holmes_sim import exporters, exporting
from holmes_sim.launching import folder
from sim.errors import PlanError
from sim.hardware.cluster import Device, Trunk
from tests import builders
from tests.builders import cluster, device, nic

POD_SPEC = {
    "restartPolicy": str,
    "hostNetwork": bool,
    "dnsPolicy": str,
    "nodeSelector": {"*": str},
    "containers": [
        {
            "name": str,
            "image": str,
            "command": [str],
            "env": [{"name": str, "value": str}],
            "resources": {"limits": {"*": int}},
            "securityContext": {"capabilities": {"add": [str]}},
            "volumeMounts": [{"name": str, "mountPath": str}],
        }
    ],
    "volumes": [{"name": str, "configMap": {"name": str}, "emptyDir": {"medium": str}}],
}
JOB_SPEC = {"parallelism": int, "completions": int, "completionMode": str, "backoffLimit": int, "template": {"spec": POD_SPEC}}
JOBSET = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"name": str, "annotations": {"*": str}},
    "spec": {
        "network": {"enableDNSHostnames": bool},
        "replicatedJobs": [{"name": str, "replicas": int, "template": {"spec": JOB_SPEC}}],
    },
}
"""The keys of a JobSet that are used, and what stands under each (JobSet v1alpha2, Kubernetes batch/v1 and core/v1)."""
TORCHRUN = '#!/usr/bin/env bash\necho "$HOLMES_HOST with $NCCL_IB_HCA:" "$@"\n'
SIX = tuple(
    Device(*device) for device in (("ib", 0, 0), ("ib", 0, 1), ("ib", 1, 0), ("ib", 1, 1), ("roce", 0, 0), ("roce", 1, 0))
)


def strange(value, known, path="") -> list[str]:
    """Paths whose key or type is not a known one."""
    if isinstance(known, type):
        return [] if type(value) is known else [path]
    if isinstance(known, list):
        return [fault for index, one in enumerate(value) for fault in strange(one, known[0], f"{path}[{index}]")]
    faults = [f"{path}.{key}" for key in value if key not in known and "*" not in known]
    for key, inside in value.items():
        faults += strange(inside, known.get(key, known.get("*", type(inside))), f"{path}.{key}")
    return faults


def pods(launch, path: Path) -> list[str]:
    """What torchrun is called with in every pod, job by job."""
    folder.write(launch, path / "launch")
    (path / "torchrun").write_text(TORCHRUN)
    (path / "torchrun").chmod(0o755)
    output = []
    jobset = yaml.safe_load(launch.files["jobset.yaml"].content)
    assert strange(jobset, JOBSET) == []
    for job in jobset["spec"]["replicatedJobs"]:
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        assert container["command"] == ["bash", "/holmes/node.sh"]
        for index in range(job["template"]["spec"]["completions"]):
            given = {entry["name"]: entry["value"] for entry in container["env"]}
            given |= {"PATH": f"{path}:{os.environ['PATH']}", "JOB_COMPLETION_INDEX": str(index)}
            output.append(subprocess.check_output(["bash", str(path / "launch/node.sh")], env=given, text=True).strip())
    return output


def fleet(hosts=((), ()), vendors=("nvidia", "amd")):
    """Two nodes of two devices on InfiniBand and two of two AMD devices on RoCE."""
    nics = (nic("infiniband"), nic("ethernet")), (nic("roce", count=2), nic("ethernet"))
    clusters = (
        replace(cluster(name, 2, 2, own, device(vendor=vendor)), hosts=names)
        for name, own, vendor, names in zip(("ib", "roce"), nics, vendors, hosts, strict=True)
    )
    return builders.fleet(*clusters, trunks=(Trunk(("ib", "roce"), "ethernet", 1e9, 0.0),))


def test_alike_hosts_of_a_cluster_are_the_pods_of_one_job(tmp_path):
    found = exporters.get("kubernetes").launch(builders.plan(fleet(), pp=3, dp=2, placement=SIX, layers=(3, 2, 1)))
    assert found.files["jobset.yaml"].content.split("  - name: roce-1\n")[0].splitlines()[6:] == FIRST_JOB.splitlines()
    assert pods(found, tmp_path) == [
        "ib-node0 with =mlx5_0: --nnodes=4 --nproc-per-node=2 --node-rank=0 --master-addr=tiny-ib-0-0-0.tiny "
        "--master-port=29500 /holmes/holmes_launch.py train.py",
        "ib-node1 with =mlx5_0: --nnodes=4 --nproc-per-node=2 --node-rank=1 --master-addr=tiny-ib-0-0-0.tiny "
        "--master-port=29500 /holmes/holmes_launch.py train.py",
        "roce-node0 with =mlx5_0,mlx5_1: --nnodes=4 --nproc-per-node=1 --node-rank=2 --master-addr=tiny-ib-0-0-0.tiny "
        "--master-port=29500 /holmes/holmes_launch.py train.py",
        "roce-node1 with =mlx5_0,mlx5_1: --nnodes=4 --nproc-per-node=1 --node-rank=3 --master-addr=tiny-ib-0-0-0.tiny "
        "--master-port=29500 /holmes/holmes_launch.py train.py",
    ]


FIRST_JOB = """\
  network: {enableDNSHostnames: true}
  replicatedJobs:
  - name: ib-0
    replicas: 1
    template:
      spec:
        parallelism: 2
        completions: 2
        completionMode: Indexed
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            hostNetwork: true
            dnsPolicy: ClusterFirstWithHostNet
            nodeSelector: {holmes-sim/cluster: "ib"}
            containers:
            - name: trainer
              image: trainer
              command: [bash, /holmes/node.sh]
              env:
              - {name: HOLMES_HOSTS, value: "ib-node0 ib-node1"}
              - {name: HOLMES_FIRST, value: "0"}
              - {name: HOLMES_RANKS, value: "2"}
              - {name: NCCL_IB_HCA, value: "=mlx5_0"}
              - {name: NCCL_SOCKET_IFNAME, value: "=eth0"}
              - {name: GLOO_SOCKET_IFNAME, value: "eth0"}
              resources: {limits: {nvidia.com/gpu: 2}}
              securityContext: {capabilities: {add: [IPC_LOCK]}}
              volumeMounts: [{name: launch, mountPath: /holmes}, {name: shm, mountPath: /dev/shm}]
            volumes:
            - {name: launch, configMap: {name: tiny}}
            - {name: shm, emptyDir: {medium: Memory}}
"""


def test_a_named_host_is_a_job_of_its_own_on_that_node(tmp_path):
    machines = fleet((("b2.example.org", "b1"), ("a4", "a3")), ("nvidia", "huawei"))
    across = tuple(Device(*device) for device in (("roce", 0, 0), ("ib", 0, 0), ("roce", 1, 0), ("ib", 1, 1)))
    plan = builders.plan(machines, pp=2, vpp=2, dp=2, schedule="interleaved", microbatches=2, placement=across)
    found = exporters.get("kubernetes").launch(plan)
    jobs = yaml.safe_load(found.files["jobset.yaml"].content)["spec"]["replicatedJobs"]
    specs = [job["template"]["spec"]["template"]["spec"] for job in jobs]
    assert [(job["name"], spec["nodeSelector"]) for job, spec in zip(jobs, specs, strict=True)] == [
        ("roce-0", {"kubernetes.io/hostname": "a4"}),
        ("ib-1", {"kubernetes.io/hostname": "b2.example.org"}),
        ("roce-2", {"kubernetes.io/hostname": "a3"}),
        ("ib-3", {"kubernetes.io/hostname": "b1"}),
    ]
    assert [spec["containers"][0]["resources"]["limits"] for spec in specs[:2]] == [
        {"huawei.com/Ascend910": 2},
        {"nvidia.com/gpu": 2},
    ]
    assert {"name": "CUDA_VISIBLE_DEVICES", "value": "1"} in specs[3]["containers"][0]["env"]
    lines = [line.split(" --master-port")[0] for line in pods(found, tmp_path)]
    assert [(line.split()[0], *line.split()[-2:]) for line in lines] == [
        ("a4", "--node-rank=0", "--master-addr=tiny-roce-0-0-0.tiny"),
        ("b2.example.org", "--node-rank=1", "--master-addr=tiny-roce-0-0-0.tiny"),
        ("a3", "--node-rank=2", "--master-addr=tiny-roce-0-0-0.tiny"),
        ("b1", "--node-rank=3", "--master-addr=tiny-roce-0-0-0.tiny"),
    ]


def test_hosts_of_one_cluster_that_are_not_alike_are_different_jobs(tmp_path):
    devices = (("ib", 0, 0), ("ib", 0, 1), ("roce", 0, 0), ("ib", 1, 1))
    plan = builders.plan(fleet(vendors=("amd", "amd")), dp=4, placement=tuple(Device(*device) for device in devices))
    found = exporters.get("kubernetes").launch(plan)
    jobs = yaml.safe_load(found.files["jobset.yaml"].content)["spec"]["replicatedJobs"]
    assert [job["name"] for job in jobs] == ["ib-0", "roce-1", "ib-2"]
    assert [line.split()[0] for line in pods(found, tmp_path)] == ["ib-node0", "roce-node0", "ib-node1"]
    assert found.assumed[:3] == (
        "Nodes of ib have the label `holmes-sim/cluster: ib`, and each can be any of its hosts.",
        "Nodes of roce have the label `holmes-sim/cluster: roce`, and each can be any of its hosts.",
        "RDMA devices reach the pods by the site's own device plug-in: add its resource to `limits` where there is one.",
    )


def test_kustomize_mounts_the_files_and_names_the_image():
    found = exporting.export(builders.plan(fleet(), dp=4, placement=SIX[:4]), "kubernetes")
    assert yaml.safe_load(found.files["kustomization.yaml"].content) == {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["jobset.yaml"],
        "images": [{"name": "trainer", "newName": "registry.example/trainer", "newTag": "latest"}],
        "configMapGenerator": [{"name": "tiny", "files": ["node.sh", "holmes_launch.py", "ranks.json", "plan.json"]}],
        "generatorOptions": {"disableNameSuffixHash": True},
    }
    assert found.files.keys() >= {"node.sh", "holmes_launch.py", "ranks.json", "plan.json", "README.md"}


def test_kueue_keeps_each_job_of_unnamed_hosts_inside_its_cluster():
    machines = fleet(((), ("a4", "a3")))
    found = exporters.get("kubernetes").launch(builders.plan(machines, pp=3, dp=2, placement=SIX))
    component = yaml.safe_load(found.files["kueue/kustomization.yaml"].content)
    assert (component["kind"], component["patches"][0]["target"]) == ("Component", {"kind": "JobSet"})
    assert yaml.safe_load(component["patches"][0]["patch"]) == [
        {"op": "add", "path": "/metadata/labels", "value": {"kueue.x-k8s.io/queue-name": "training"}},
        {
            "op": "add",
            "path": "/spec/replicatedJobs/0/template/spec/template/metadata",
            "value": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "holmes-sim/cluster"}},
        },
    ]


LONG = "a-cluster-whose-name-is-so-long-that-no-pod-can-bear-it"


@pytest.mark.parametrize(
    ("facts", "spec", "fault"),
    [
        ({}, {}, "devices of acme (cluster c): their resource has no known name; devices of nvidia, amd, huawei"),
        (
            {"hosts": ("eth:1",)},
            {"vendor": "amd"},
            "kubernetes.io/hostname eth:1: not a label; at most 63 letters, digits, '.', '_' and '-'",
        ),
        (
            {"name": LONG},
            {"vendor": "amd"},
            f"pod name tiny-{LONG}-0-0-0: 66 characters; at most 63, by shorter names of topology and cluster",
        ),
    ],
)
def test_what_kubernetes_would_not_take_is_refused(facts, spec, fault):
    fleet = builders.fleet(replace(cluster("c", 1, 2, spec=device(**spec)), **facts))
    with pytest.raises(PlanError) as caught:
        exporting.export(builders.plan(fleet, dp=2), "kubernetes")
    assert str(caught.value) == f"kubernetes cannot express {fault}"


def test_one_image_for_two_vendors_is_reported():
    nics = (nic("roce"), nic("ethernet"))
    own = [cluster(vendor, 1, 1, nics, device(vendor=vendor)) for vendor in ("nvidia", "amd")]
    machines = builders.fleet(*own, trunks=(Trunk(("nvidia", "amd"), "ethernet", 1e9, 0.0),))
    line = "One image serves amd and nvidia: if each has its own, set `image` of their jobs in jobset.yaml."
    assert line in exporters.get("kubernetes").launch(builders.plan(machines, dp=2)).assumed
    machines = builders.fleet(replace(own[0], nodes=2))
    assert not any("image" in line for line in exporters.get("kubernetes").launch(builders.plan(machines, dp=2)).assumed)


def test_a_launch_that_is_too_large_is_refused(monkeypatch):
    target = exporters.get("kubernetes")
    monkeypatch.setattr(target, "CONFIG_MAP_BYTES", 1024)
    monkeypatch.setattr(target, "OBJECT_BYTES", 1024)
    table, jobset = exporters.unsupported("kubernetes", builders.plan(fleet(), pp=3, dp=2, placement=SIX))
    assert table.startswith("4 hosts: ") and table.endswith(" bytes of plan, rank table and shim; a ConfigMap holds 1,024")
    assert jobset.startswith("2 jobs: ")
    assert jobset.endswith(
        " bytes; etcd takes 1,024, enough for a topology without `hosts`, whose clusters are one job each"
    )  # fmt: skip


def test_a_name_that_begins_with_a_digit_gets_a_letter_before_it():
    machines = replace(fleet(), name="3 Sites")
    found = exporters.get("kubernetes").launch(builders.plan(machines, dp=4, placement=SIX[:4]))
    assert yaml.safe_load(found.files["jobset.yaml"].content)["metadata"]["name"] == "plan-3-sites"
