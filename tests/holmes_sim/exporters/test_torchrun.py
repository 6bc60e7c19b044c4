"""An export launches: its scripts, run as they are written, put every rank where the plan says.

On the machines of the lab where it is permitted (a network namespace and a host name for each host, the NICs of the plan by the
names that the export gives to gloo), else on the loopback of this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holmes_sim import exporting
from holmes_sim.lab.lab import Lab
from holmes_sim.lab.namespaces import Namespaces
from holmes_sim.launching import folder, hosts
from sim.errors import HolmesError
from sim.formats import documents, topology
from sim.hardware.cluster import Device
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage
from tests.more import more

pytest.importorskip("torch.distributed")

TOPOLOGY = """\
format: holmes-sim/topology/1
name: three-hosts
source: written for this test
clusters:
  ib:
    nodes: 1
    hosts: [ib0]
    node:
      devices: {{type: a100-sxm4-80gb, count: 4}}
      intra_node: nvlink3
      nics: [{{type: infiniband, bandwidth: 200 Gbit/s}}, {{type: ethernet, bandwidth: 25 Gbit/s, names: [{interface}]}}]
  roce:
    nodes: 2
    hosts: [roce0, roce1.site]
    node:
      devices: {{type: a100-sxm4-80gb, count: 2}}
      intra_node: nvlink3
      nics: [{{type: roce, bandwidth: 200 Gbit/s}}, {{type: ethernet, bandwidth: 25 Gbit/s, names: [{interface}]}}]
links: [{{between: [ib, roce], type: ethernet, bandwidth: 100 Gbit/s, latency: 50 us}}]
workload: {{model: gpt-1.7b, global_batch_size: 16, seq_len: 2048, precision: bf16}}
"""

TRAIN = """\
import json, os, socket, sys
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
mine = {"host": socket.gethostname(), "node": os.environ["HOLMES_NODE"], "local_rank": int(os.environ["LOCAL_RANK"]),
        "words": sys.argv[1:], "rank": dist.get_rank()}
for name in ("pp", "dp"):
    heard = [None, None]
    dist.all_gather_object(heard, (mine["node"], mine["rank"]), group=mesh[name].get_group())
    mine[name] = heard
with open(os.path.join(os.path.dirname(__file__), f"rank{mine['rank']}.json"), "w") as file:
    json.dump(mine, file)
dist.destroy_process_group()
"""

LIGHT = """\
import json, os, sys
found = {key: os.environ[key] for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "HOLMES_NODE", "MASTER_ADDR", "MASTER_PORT")}
with open(os.path.join(os.path.dirname(__file__), f"rank{found['RANK']}.json"), "w") as file:
    json.dump(found | {"words": sys.argv[1:]}, file)
"""
"""A training script that builds no groups."""
NO_TORCH = "def init_process_group(): ...\ndef new_group(): ...\ndef split_group(): ...\n"
"""What the shim changes in torch.distributed.distributed_c10d: torch itself takes seconds to import."""
STAND_IN = """\
#!/usr/bin/env python3
import argparse, os, subprocess, sys
parser = argparse.ArgumentParser()
for name in ("nnodes", "nproc-per-node", "node-rank", "master-port"):
    parser.add_argument(f"--{name}", type=int, required=True)
parser.add_argument("--master-addr", required=True)
parser.add_argument("command", nargs=argparse.REMAINDER)
told = parser.parse_args()
for local in range(told.nproc_per_node):
    ranks = {"LOCAL_RANK": local, "LOCAL_WORLD_SIZE": told.nproc_per_node, "RANK": -1, "WORLD_SIZE": 4,
             "GROUP_RANK": told.node_rank, "MASTER_ADDR": told.master_addr, "MASTER_PORT": told.master_port}
    subprocess.run([sys.executable, *told.command], env=os.environ | {key: str(it) for key, it in ranks.items()}, check=True)
"""
"""What stands in for torchrun: starts the processes of one host, whose ranks the shim must set."""


def refused() -> str:
    try:
        with Namespaces(1) as namespaces:
            namespaces.run(1, ("unshare", "--uts", "hostname", "other"))
    except HolmesError as error:
        return str(error)
    return ""


def plan_of(interface: str) -> Plan:
    """pp 2, dp 2, ranks in no order: 3 and 0 on ib0, 2 on roce0, 1 on roce1."""
    where = topology.from_document(documents.parse("three-hosts.yaml", TOPOLOGY.format(interface=interface)))
    config = ParallelConfig(pp=2, dp=2, num_microbatches=(8, 8))
    placement = (Device("ib", 0, 2), Device("roce", 1, 0), Device("roce", 0, 1), Device("ib", 0, 1))
    stages = (Stage(0, 13), Stage(13, 24))
    assert where.workload is not None
    groups = groups_of(where.fleet, config, placement)
    return Plan(where, where.workload, config, stages, placement, groups, MadeBy("by hand", "1"))


Inside = Callable[[str, list[str]], list[str]]


@contextmanager
def on_loopback(plan: Plan) -> Iterator[tuple[str, Inside]]:
    yield "127.0.0.1", lambda host, command: ["env", f"HOLMES_HOST={host}", *command]


@contextmanager
def in_the_lab(plan: Plan) -> Iterator[tuple[str, Inside]]:
    with Lab(plan, 1.0) as lab:
        numbers = {str(host): number for number, host in enumerate(lab.wiring.hosts)}
        at = {host.name: numbers[host.node] for host in hosts.of_plan(plan)}
        master = lab.wiring.hosts[at["ib0"]].of_kind("ethernet")[0].address

        def inside(host: str, command: list[str]) -> list[str]:
            named = ["unshare", "--uts", "sh", "-c", 'hostname "$1"; shift; exec "$@"', "sh", host, *command]
            rank = next(rank for rank, location in enumerate(lab.wiring.ranks) if location.host == at[host])
            namespace, _ = lab.namespace_of(rank)
            return lab.inside(["nsenter", f"--net={namespace}", *named])

        yield master, inside


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"} | more


def test_the_scripts_start_every_rank_of_their_host_under_what_stands_in_for_torchrun(tmp_path):
    """Ranks, nodes, the master and the words of every process; `make test-more` starts torchrun itself."""
    plan = plan_of("lo")
    folder.write(exporting.export(plan, "torchrun"), tmp_path / "launch")
    (tmp_path / "train.py").write_text(LIGHT, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "torchrun").write_text(STAND_IN, encoding="utf-8")
    (tmp_path / "bin" / "torchrun").chmod(0o755)
    (tmp_path / "bin" / "torch" / "distributed").mkdir(parents=True)
    for name, text in (("__init__", ""), ("distributed/__init__", ""), ("distributed/distributed_c10d", NO_TORCH)):
        (tmp_path / "bin" / "torch" / f"{name}.py").write_text(text, encoding="utf-8")
    for host in ("roce1.site", "roce0", "ib0"):
        given = environment(HOLMES_HOST=host, MASTER_PORT="29555", PYTHONPATH=str(tmp_path / "bin"))
        given |= {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{given['PATH']}"}
        script = tmp_path / "launch" / "launch" / f"{host}.sh"
        done = subprocess.run(
            ["bash", str(script), str(tmp_path / "train.py"), "--steps", "two words"],
            env=given, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    found = [json.loads((tmp_path / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in range(4)]
    assert [(one["HOLMES_NODE"], one["LOCAL_RANK"]) for one in found] == [
        ("ib/node0", "1"), ("roce/node1", "0"), ("roce/node0", "0"), ("ib/node0", "0"),
    ]  # fmt: skip
    assert {(one["WORLD_SIZE"], one["MASTER_ADDR"], one["MASTER_PORT"]) for one in found} == {("4", "ib0", "29555")}
    assert all(one["words"] == ["--steps", "two words"] for one in found)


@more
def test_the_scripts_put_every_rank_where_the_plan_says(tmp_path):
    why_not = refused()
    plan = plan_of("lo" if why_not else "ethernet0")
    folder.write(exporting.export(plan, "torchrun"), tmp_path / "launch")
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    scripts = sorted((tmp_path / "launch" / "launch").iterdir())
    assert [script.stem for script in scripts] == ["ib0", "roce0", "roce1.site"]
    port = str(free_port())
    with (on_loopback if why_not else in_the_lab)(plan) as (master, inside):
        running = [
            subprocess.Popen(
                inside(script.stem, ["bash", str(script), str(tmp_path / "train.py"), "--steps", "two words"]),
                cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env=environment(MASTER_ADDR=master, MASTER_PORT=port),
            )
            for script in reversed(scripts)
        ]  # fmt: skip
        try:
            said = [one.communicate(timeout=120)[0] for one in running]
        finally:
            for one in running:
                one.terminate()
                one.communicate()
    assert [one.returncode for one in running] == [0, 0, 0], said
    found = [json.loads((tmp_path / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in range(4)]
    nodes = ["ib/node0", "roce/node1", "roce/node0", "ib/node0"]
    assert [(one["rank"], one["node"], one["local_rank"]) for one in found] == [
        (0, nodes[0], 1), (1, nodes[1], 0), (2, nodes[2], 0), (3, nodes[3], 0),
    ]  # fmt: skip
    if not why_not:
        assert [one["host"] for one in found] == ["ib0", "roce1.site", "roce0", "ib0"]
    for rank, one in enumerate(found):
        for kind in ("pp", "dp"):
            members = next(sorted(group.ranks) for group in plan.groups if group.kind == kind and rank in group.ranks)
            assert one[kind] == [[nodes[member], member] for member in members]
        assert one["words"] == ["--steps", "two words"]


@pytest.mark.parametrize(
    ("script", "host", "line"),
    [
        ("roce0", "ib0", "the script of roce0 was started on ib0, which is ib0 of the plan"),
        ("ib0", "ib1", "host 'ib1' is not of ib0, roce1.site, roce0; HOLMES_HOST may name it"),
    ],
)
def test_a_script_on_a_wrong_host_is_one_line(script, host, line, tmp_path):
    folder.write(exporting.export(plan_of("lo"), "torchrun"), tmp_path / "launch")
    command = ["bash", str(tmp_path / "launch" / "launch" / f"{script}.sh"), "train.py"]
    done = subprocess.run(command, env=environment(HOLMES_HOST=host), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"holmes_launch: {line}\n")


@more
def test_a_launch_of_another_size_is_one_line_before_torchruns_own(tmp_path):
    folder.write(exporting.export(plan_of("lo"), "torchrun"), tmp_path / "launch")
    command = ["torchrun", "--standalone", "--nproc-per-node=3", str(tmp_path / "launch" / "holmes_launch.py"), "train.py"]
    done = subprocess.run(command, env=environment(HOLMES_HOST="ib0"), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    ours = [line for line in done.stderr.splitlines() if line.startswith("holmes_launch")]
    assert ours == ["holmes_launch: the launch has 3 ranks on ib0, the plan 2"]
