"""Launches of `holmes-sim run` by torchrun: unlike pipelines, and attention and experts on two sets of ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holmes_sim import exporting
from holmes_sim.launching import folder
from sim.errors import NotSupported
from sim.formats import pipelinesfile
from sim.plan.derived_groups import every_group
from tests.holmes_sim.exporters.test_torchrun import free_port
from tests.more import more
from tests.sim.formats.test_pipelinesfile import BY_HAND
from tests.two_rank_sets import plan as two_sets

ON_LOOPBACK = BY_HAND.replace("bandwidth: 25 Gbit/s}", "bandwidth: 25 Gbit/s, names: [lo]}")
SCRIPT = """\
#!/usr/bin/env bash
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$here"/env/roce-node0.env
exec torchrun --nnodes=2 --nproc-per-node=2 --node-rank=1 --master-addr="${MASTER_ADDR:-ib-node0}" \
--master-port="${MASTER_PORT:-29500}" -m holmes_sim.cli run "$here"/plan.pipelines.json "$@"
"""


def by_hand(text=BY_HAND):
    return pipelinesfile.from_text("plan.yaml", text)


def test_each_host_of_unlike_pipelines_has_its_ranks_and_its_place_in_the_plan():
    launch = exporting.export(by_hand(), "torchrun")
    names = [f"{kind}/{host}.{end}" for host in ("ib-node0", "roce-node0") for kind, end in (("env", "env"), ("launch", "sh"))]
    assert set(launch.files) == {*names, folder.README, "plan.pipelines.json"}
    assert launch.files["launch/roce-node0.sh"].content == SCRIPT
    assert str(launch.files["env/roce-node0.env"].content).splitlines()[-2:] == [
        "export GLOO_SOCKET_IFNAME='eth0'", "export HOLMES_SIM_HOST='roce/node0'",
    ]  # fmt: skip
    assert pipelinesfile.from_text("x", str(launch.files["plan.pipelines.json"].content)) == by_hand()
    readme = str(launch.files[folder.README].content)
    assert "| 0 | ib-node0 | 0 to 1 | 1, 2, 1, 1 | 3, 1 | 3 |\n| 1 | roce-node0 | 2 to 3 | 2, 1, 1, 1 | 4 | 5 |" in readme
    assert "One launch has the ranks of all pipelines." in readme


def test_groups_have_the_numbers_of_the_whole_plan():
    found = [(group.kind, group.ranks, group.nic) for group in every_group(by_hand())]
    assert found == [
        ("pp", (0, 1), "intra_node"), ("tp", (2, 3), "intra_node"),
        ("dp", (0, 2), "ethernet"), ("dp", (0, 3), "ethernet"), ("dp", (1, 2), "ethernet"), ("dp", (1, 3), "ethernet"),
    ]  # fmt: skip


def test_two_sets_of_ranks_are_one_launch():
    launch = exporting.export(two_sets(), "torchrun")
    readme = str(launch.files[folder.README].content)
    assert "| attention | new-node0, new-node1 | 0 to 1 |\n| experts | old-node0 | 2 |" in readme
    assert "plan.disaggregated.json" in launch.files


def test_a_slurm_job_starts_the_scripts_of_the_hosts():
    launch = exporting.export(by_hand(), "slurm")
    assert launch.files["launch/roce-node0.sh"].content == SCRIPT
    assert str(launch.files["job.sbatch"].content).count('bash "$here"/node.sh "$@"') == 2
    assert "sbatch job.sbatch --steps 3" in launch.how


def test_ranks_that_torchrun_would_number_otherwise_are_refused():
    swapped = BY_HAND.replace("[roce/node0/dev0, roce/node0/dev1]", "[roce/node0/dev1, roce/node0/dev0]")
    with pytest.raises(NotSupported) as refused:
        exporting.export(by_hand(swapped), "torchrun")
    assert str(refused.value) == (
        "torchrun cannot express placement: torchrun fills hosts in order; ranks in the order of hosts and devices"
    )


@more
def test_the_scripts_of_two_hosts_train_the_plan(tmp_path):
    """Both hosts are this machine: gloo on its loopback."""
    pytest.importorskip("torch.distributed")
    exporting.export(by_hand(ON_LOOPBACK), "torchrun", tmp_path / "launch")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    running = [
        subprocess.Popen(
            ["bash", str(tmp_path / "launch" / "launch" / f"{host}.sh"), "--steps", "1"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=given,
        )
        for host in ("roce-node0", "ib-node0")
    ]  # fmt: skip
    try:
        said = [one.communicate(timeout=240)[0] for one in running]
    finally:
        for one in running:
            one.terminate()
            one.communicate()
    assert [one.returncode for one in running] == [0, 0], said
    assert "run: measured step of" in said[1]
