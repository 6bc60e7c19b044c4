"""A batch job has one component a cluster, and each node takes the ranks of its host in the plan."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from holmes_sim import exporters, exporting
from holmes_sim.launching import folder
from sim.errors import PlanError
from sim.hardware.cluster import Device, Trunk
from tests import builders
from tests.builders import cluster, device, nic

SRUN = """\
#!/usr/bin/env python3
# srun in little: components separated by a lone colon, one task a node, tasks numbered through, nodes in Slurm's own order
import os, subprocess, sys
nodes, task, words = iter(os.environ["NODES"].split()), 0, sys.argv[1:]
while words:
    end = words.index(":") if ":" in words else len(words)
    one, words = words[:end], words[end + 1:]
    options = dict(word[2:].split("=", 1) for word in one[:one.index("bash")])
    for _ in range(int(options["nodes"])):
        place = {"SLURM_PROCID": str(task), "SLURMD_NODENAME": next(nodes)}
        subprocess.run(one[one.index("bash"):], env=os.environ | place, check=True)
        task += 1
"""
TORCHRUN = """\
#!/usr/bin/env bash
echo "$SLURMD_NODENAME is $HOLMES_HOST with $NCCL_IB_HCA:" "${@:1:4}" "${@:7}"
"""
TWO = (Trunk(("ib", "roce"), "ethernet", 1e9, 0.0),)


def fleet(named=()):
    """Two nodes of two devices on InfiniBand and two of one device on RoCE; `named` says what the hosts are called."""
    nvidia = device(vendor="nvidia")
    own = (nic("infiniband"), nic("ethernet")), (nic("roce", count=2), nic("ethernet"))
    clusters = cluster("ib", 2, 2, own[0], nvidia), cluster("roce", 2, 1, own[1], nvidia)
    names = dict(named)
    return builders.fleet(*(replace(one, hosts=names.get(one.name, ())) for one in clusters), trunks=TWO)


def run(launch, path: Path, nodes: str) -> list[str]:
    """What torchrun is called with when the job runs on these nodes, given in the order in which Slurm has them."""
    folder.write(launch, path / "launch")
    for name, text in (("srun", SRUN), ("torchrun", TORCHRUN)):
        (path / name).write_text(text)
        (path / name).chmod(0o755)
    first = {"SLURM_SUBMIT_DIR": str(path / "launch"), "SLURMD_NODENAME": nodes.split()[0], "NODES": nodes}
    environment = os.environ | first | {"PATH": f"{path}:{os.environ['PATH']}"}
    words = ["bash", str(path / "launch/job.sbatch"), "train.py", "a word"]
    result = subprocess.run(words, env=environment, text=True, capture_output=True, check=True)
    return result.stdout.replace(f"{path}/launch/", "").splitlines()


def test_clusters_without_host_names_are_requested_by_feature_and_numbered(tmp_path):
    found = exporters.get("slurm").launch(builders.plan(fleet(), pp=3, dp=2, placement=SIX, layers=(3, 2, 1)))
    assert found.files["job.sbatch"].content == JOB
    assert "hosts=(ib-node0 ib-node1 roce-node0 roce-node1)  # by task\n" in found.files["node.sh"].content
    assert found.assumed[:2] == (
        "Nodes of ib have Slurm's feature `ib`, and each can be any of its hosts.",
        "Nodes of roce have Slurm's feature `roce`, and each can be any of its hosts.",
    )
    assert run(found, tmp_path, "cn7 cn9 cn1 cn2") == [
        "cn7 is ib-node0 with =mlx5_0: --nnodes=4 --nproc-per-node=2 --node-rank=0 --master-addr=cn7 train.py a word",
        "cn9 is ib-node1 with =mlx5_0: --nnodes=4 --nproc-per-node=2 --node-rank=1 --master-addr=cn7 train.py a word",
        "cn1 is roce-node0 with =mlx5_0,mlx5_1: --nnodes=4 --nproc-per-node=1 --node-rank=2 --master-addr=cn7 train.py a word",
        "cn2 is roce-node1 with =mlx5_0,mlx5_1: --nnodes=4 --nproc-per-node=1 --node-rank=3 --master-addr=cn7 train.py a word",
    ]


SIX = tuple(
    Device(*device) for device in (("ib", 0, 0), ("ib", 0, 1), ("ib", 1, 0), ("ib", 1, 1), ("roce", 0, 0), ("roce", 1, 0))
)
JOB = """\
#!/usr/bin/env bash
#SBATCH --job-name=tiny
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=2 --exclusive --mem=0
#SBATCH --constraint=ib
#SBATCH hetjob
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=1 --exclusive --mem=0
#SBATCH --constraint=roce
set -euo pipefail
here=${HOLMES_FOLDER:-$SLURM_SUBMIT_DIR}
if [ ! -f "$here"/node.sh ]; then
  echo "$here has no node.sh: submit from the folder of the launch, or set HOLMES_FOLDER" >&2
  exit 2
fi
export MASTER_ADDR=${MASTER_ADDR:-$SLURMD_NODENAME}  # this runs on the first node
all="--kill-on-bad-exit=1 --cpu-bind=none"  # the one task of a node has all its CPUs
srun \\
  --het-group=0 --nodes=2 --ntasks-per-node=1 --gpus-per-node=2 $all bash "$here"/node.sh "$@" : \\
  --het-group=1 --nodes=2 --ntasks-per-node=1 --gpus-per-node=1 $all bash "$here"/node.sh "$@"
"""


@pytest.mark.parametrize(
    ("names", "nodelist"),
    [
        (("gpu1", "gpu2"), "gpu[1-2]"),
        (("gpu1.site", "gpu2.site"), "gpu1.site,gpu2.site"),
        (("b9-ib", "b10-ib"), "b9-ib,b10-ib"),
    ],
)
def test_hosts_whose_number_is_not_last_are_listed_one_by_one(names, nodelist):
    """Slurm 22.05.8 to `scontrol show hostnames gpu[1-2].site`: Invalid hostlist."""
    plan = builders.plan(fleet({"ib": names}), dp=4)
    assert f"#SBATCH --nodelist={nodelist}\n" in exporters.get("slurm").launch(plan).files["job.sbatch"].content


def test_named_hosts_are_found_by_name_in_whatever_order_slurm_has_them(tmp_path):
    machines = fleet({"ib": ("b2", "b1"), "roce": ("a4", "a3")})
    across = tuple(Device(*device) for device in (("roce", 0, 0), ("ib", 0, 0), ("roce", 1, 0), ("ib", 1, 0)))
    found = exporters.get("slurm").launch(builders.plan(machines, pp=4, placement=across))
    lines = [line for line in found.files["job.sbatch"].content.splitlines() if "nodelist" in line]
    assert lines == ["#SBATCH --nodelist=a4,a3", "#SBATCH --nodelist=b2,b1"]
    assert "MASTER_ADDR" not in found.files["job.sbatch"].content
    assert run(found, tmp_path, "a3 a4 b1 b2") == [
        "a3 is a3 with =mlx5_0,mlx5_1: --nnodes=4 --nproc-per-node=1 --node-rank=2 --master-addr=a4 train.py a word",
        "a4 is a4 with =mlx5_0,mlx5_1: --nnodes=4 --nproc-per-node=1 --node-rank=0 --master-addr=a4 train.py a word",
        "b1 is b1 with =mlx5_0: --nnodes=4 --nproc-per-node=1 --node-rank=3 --master-addr=a4 train.py a word",
        "b2 is b2 with =mlx5_0: --nnodes=4 --nproc-per-node=1 --node-rank=1 --master-addr=a4 train.py a word",
    ]


def test_where_one_cluster_is_named_its_nodes_go_by_name_and_the_others_by_number(tmp_path):
    plan = builders.plan(fleet({"ib": ("b2", "b1")}), pp=2, vpp=2, dp=3, schedule="interleaved", microbatches=2, placement=SIX)
    found = exporters.get("slurm").launch(plan)
    assert "hosts=('' '' roce-node0 roce-node1)  # by task; empty: by name\n" in found.files["node.sh"].content
    output = [line.split(" with ")[0] for line in run(found, tmp_path, "b1 b2 x8 x9")]
    assert output == ["b1 is b1", "b2 is b2", "x8 is roce-node0", "x9 is roce-node1"]


def test_one_cluster_is_a_plain_job(tmp_path):
    found = exporters.get("slurm").launch(builders.plan(fleet(), dp=4, placement=SIX[:4]))
    job = found.files["job.sbatch"].content
    assert "het" not in job
    assert "srun \\\n  --nodes=2 --ntasks-per-node=1 --gpus-per-node=2 $all bash" in job
    assert [line.split(" with ")[0] for line in run(found, tmp_path, "n1 n2")] == ["n1 is ib-node0", "n2 is ib-node1"]


def test_devices_that_slurm_calls_otherwise_are_not_requested():
    plan = builders.plan(builders.fleet(cluster("npu", 2, 1, spec=device(vendor="huawei"))), dp=2)
    found = exporters.get("slurm").launch(plan)
    assert "gpus" not in found.files["job.sbatch"].content
    assert found.assumed[1] == (
        "Nodes of npu are taken whole (--exclusive); what Slurm calls their devices is the site's own: "
        "add it as --gres where the site wants it."
    )


def test_submitted_from_elsewhere_the_job_says_so(tmp_path):
    job = tmp_path / "job.sbatch"
    job.write_text(exporting.export(builders.plan(fleet(), dp=4, placement=SIX[:4]), "slurm").files["job.sbatch"].content)
    environment = {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURMD_NODENAME": "n1", "PATH": os.environ["PATH"]}
    result = subprocess.run(["bash", str(job)], env=environment, text=True, capture_output=True)
    assert (result.returncode, result.stderr) == (
        2,
        f"{tmp_path} has no node.sh: submit from the folder of the launch, or set HOLMES_FOLDER\n",
    )


def test_more_clusters_than_components_are_refused(monkeypatch):
    monkeypatch.setattr(exporters.get("slurm"), "MOST", 1)
    with pytest.raises(PlanError) as caught:
        exporting.export(builders.plan(fleet(), pp=3, dp=2, placement=SIX), "slurm")
    assert str(caught.value) == (
        "slurm cannot express 2 clusters: a heterogeneous job has at most 1 components; a plan on fewer clusters"
    )  # fmt: skip
