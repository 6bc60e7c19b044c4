"""Blocks of an mpirun line follow the ranks, the rankfile says the same, and a process is its rank on that rank's device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from holmes_sim import exporters, exporting, launching
from holmes_sim.launching import folder
from sim.errors import PlanError
from sim.hardware.cluster import Device, Trunk
from tests import builders
from tests.builders import cluster, nic

MPIRUN = """\
#!/usr/bin/env python3
# mpirun in little: blocks separated by a lone colon, ranks numbered through, everything here; a host's local ranks by rank
import os, re, subprocess, sys
rank, local, words = 0, {}, [word for word in sys.argv[1:] if word not in ("--bind-to", "none")]
size, mapped = sum(int(words[index + 1]) for index, word in enumerate(words) if word == "-np"), {}
if "--map-by" in words:
    file = words[words.index("--map-by") + 1].removeprefix("rankfile:file=")
    mapped = dict(re.fullmatch(r"rank (\\d+)=(\\S+) slot=\\d+", line).groups() for line in open(file).read().splitlines())
while words:
    end = words.index(":") if ":" in words else len(words)
    block, words = words[:end], words[end + 1:]
    slots = dict(host.split(":") for host in block[block.index("-host") + 1].split(","))
    for _ in range(int(block[block.index("-np") + 1])):
        host = mapped[str(rank)] if mapped else next(iter(slots))
        own = {"RANK": rank, "SIZE": size, "LOCAL_RANK": local.setdefault(host, 0)}
        own = {f"OMPI_COMM_WORLD_{key}": str(value) for key, value in own.items()}
        subprocess.run(block[block.index("bash"):], env=os.environ | own | {"HOLMES_HOST": host}, check=True)
        rank, local[host] = rank + 1, local[host] + 1
        assert local[host] <= int(slots[host])
"""
SCRIPT = """\
import os, sys
keys = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "HOLMES_NODE", "MASTER_ADDR", "MASTER_PORT", "NCCL_IB_HCA")
print(*(os.environ.get(key, "-") for key in keys), *sys.argv[1:])
"""
SHIM = Path(launching.__file__).parent / "holmes_mpi.py"


@pytest.fixture
def crossed():
    """Ranks 0 and 3 share a host, in the other order of their devices; layers are uneven."""
    own = (nic("infiniband"), nic("ethernet")), (nic("roce"), nic("ethernet"))
    ib = replace(cluster("ib", 2, 2, own[0]), hosts=("b0", "b1"))
    roce = replace(cluster("roce", 2, 2, own[1]), hosts=("a1", "a0"))
    fleet = builders.fleet(ib, roce, trunks=(Trunk(("ib", "roce"), "ethernet", 1e9, 0.0),))
    devices = (("roce", 0, 1), ("ib", 0, 1), ("ib", 0, 0), ("roce", 0, 0), ("ib", 1, 0), ("ib", 1, 1))
    return builders.plan(fleet, pp=3, dp=2, placement=tuple(Device(*device) for device in devices), layers=(3, 2, 1))


def test_blocks_follow_the_ranks_and_name_all_slots_of_their_host(crossed):
    assert exporters.get("mpi").launch(crossed).files["mpirun.sh"].content == (
        "#!/usr/bin/env bash\n"
        "# 6 ranks on 3 hosts, in the plan's order: a block for each run of ranks on one host\n"
        "set -euo pipefail\n"
        'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\n'
        "export PYTHON=${PYTHON:-$(command -v python3)}\n"
        "export MASTER_ADDR=${MASTER_ADDR:-a1} MASTER_PORT=${MASTER_PORT:-29500}\n"
        'all="-x PYTHON -x MASTER_ADDR -x MASTER_PORT"\n'
        "exec mpirun --bind-to none \\\n"
        '  -np 1 -host a1:2 $all bash "$here"/launch/a1.sh "$@" : \\\n'
        '  -np 2 -host b0:2 $all bash "$here"/launch/b0.sh "$@" : \\\n'
        '  -np 1 -host a1:2 $all bash "$here"/launch/a1.sh "$@" : \\\n'
        '  -np 2 -host b1:2 $all bash "$here"/launch/b1.sh "$@"\n'
    )


def test_the_rankfile_has_every_rank_on_its_host_and_slots_as_local_ranks(crossed):
    files = exporters.get("mpi").launch(crossed).files
    assert files["rankfile"].content == (
        "rank 0=a1 slot=1\nrank 1=b0 slot=1\nrank 2=b0 slot=0\nrank 3=a1 slot=0\nrank 4=b1 slot=0\nrank 5=b1 slot=1\n"
    )
    assert files["mpirun-rankfile.sh"].content.splitlines()[-2:] == [
        "exec mpirun --bind-to none --map-by rankfile:file=/dev/fd/3 \\",
        '  -np 6 -host a1:2,b0:2,b1:2 $all bash "$here"/rank.sh "$@" 3< "$here"/rankfile',
    ]


@pytest.mark.parametrize("script", ["mpirun.sh", "mpirun-rankfile.sh"])
def test_every_process_is_its_rank_on_its_device_in_its_hosts_environment(script, crossed, tmp_path):
    folder.write(exporting.export(crossed, "mpi"), tmp_path / "launch")
    (tmp_path / "mpirun").write_text(MPIRUN)
    (tmp_path / "mpirun").chmod(0o755)
    (tmp_path / "train.py").write_text(SCRIPT)
    shim = tmp_path / "launch/holmes_launch.py"
    shim.write_text(shim.read_text().replace("    steer(table)\n", ""))  # torch alone would take its time
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": sys.executable}
    words = ["bash", str(tmp_path / "launch" / script), str(tmp_path / "train.py"), "a word"]
    output = subprocess.run(words, env=environment, text=True, capture_output=True, check=True).stdout
    assert output.splitlines() == [
        "0 1 2 6 roce/node0 a1 29500 - a word",
        "1 1 2 6 ib/node0 a1 29500 =mlx5_0 a word",
        "2 0 2 6 ib/node0 a1 29500 =mlx5_0 a word",
        "3 0 2 6 roce/node0 a1 29500 - a word",
        "4 0 2 6 ib/node1 a1 29500 =mlx5_0 a word",
        "5 1 2 6 ib/node1 a1 29500 =mlx5_0 a word",
    ]


def test_a_process_elsewhere_than_its_rank_says_so(crossed, tmp_path):
    folder.write(exporting.export(crossed, "mpi"), tmp_path)
    own = {"OMPI_COMM_WORLD_RANK": "4", "OMPI_COMM_WORLD_SIZE": "6", "HOLMES_HOST": "a1", "PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", str(tmp_path / "launch/b1.sh"), "t.py"], env=os.environ | own, text=True, capture_output=True
    )
    assert done.stderr == "holmes_launch: the script of b1 was started on a1, which is a1 of the plan\n"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({}, "holmes_mpi: OMPI_COMM_WORLD_RANK is not set: start it by Open MPI's mpirun\n"),
        (
            {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"},
            "holmes_mpi: rank 2 is not in the plan, which has 2 ranks\n",
        ),
    ],
)
def test_a_launch_that_is_not_the_plans_says_so(given, fault, tmp_path):
    (tmp_path / "ranks.json").write_text(json.dumps({"world_size": 2, "hosts": [{"host": "a", "ranks": [0, 1]}]}))
    (tmp_path / "holmes_mpi.py").write_text(SHIM.read_text())
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OMPI_")}
    words = [sys.executable, str(tmp_path / "holmes_mpi.py"), "t.py"]
    done = subprocess.run(words, env=clean | given, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (1, fault)


def test_a_host_that_mpirun_would_read_otherwise_is_refused():
    plan = builders.plan(builders.fleet(replace(cluster("c", 1, 2), hosts=("fe80:1",))), dp=2)
    with pytest.raises(PlanError) as caught:
        exporting.export(plan, "mpi")
    assert str(caught.value) == (
        "mpi cannot express clusters.c.hosts fe80:1: mpirun reads slots behind `:`; a name without it"
    )  # fmt: skip


def test_virtual_stages_change_nothing_of_a_launch():
    plan = builders.plan(builders.fleet(cluster("c", 2, 2)), pp=2, dp=2, vpp=2, schedule="interleaved", microbatches=2)
    blocks = [line for line in exporters.get("mpi").launch(plan).files["mpirun.sh"].content.splitlines() if "-np" in line]
    assert [block.split()[:4] for block in blocks] == [["-np", "2", "-host", "c-node0:2"], ["-np", "2", "-host", "c-node1:2"]]
