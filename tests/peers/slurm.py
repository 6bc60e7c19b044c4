"""Slurm reads an exported batch job: slurmctld places it, and slurmd starts its tasks.

Read by the real programs: each component's nodes and GPUs (slurmctld, over nodes of State=CLOUD that never come up; a
component that it would put on other nodes than its cluster's raises), and `hosts`, `world_size`, `environment`: the job is
run by slurmd, every node a slurmd on the loopback, and torchrun is a stub that writes down what it was called with; the rank
of each local rank is then the exported shim's own. The GPUs are left out of that second run: slurmd wants device files.
Launches over more than MOST hosts are placed and not run.

Debian packages: slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge and what they need, version 22.05. Installed, or
unpacked with `dpkg -x` under the folder that SLURM_ROOT names. Nothing listens beyond the loopback.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(os.environ.get("SLURM_ROOT", "/"))
LIBRARIES = ROOT / "usr/lib/x86_64-linux-gnu"
MOST = 16
CONF = """\
ClusterName=peers
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
GresTypes=gpu
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdParameters=config_overrides
PluginDir={plugins}
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=3600
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO
"""
TORCHRUN = """\
#!/usr/bin/env python3
import json, os, sys
seen = {"arguments": sys.argv[1:], "environment": dict(os.environ)}
with open(os.environ["PEERS_SEEN"] + "/" + os.environ["SLURMD_NODENAME"], "w") as file:
    json.dump(seen, file)
"""


def VERSIONS() -> dict[str, str]:
    """Slurm's own version."""
    return {"slurm": subprocess.check_output([_program("slurmctld"), "-V"], text=True, env=_environment()).split()[-1]}


def read(folder: Path, plan_json: dict[str, Any]) -> dict[str, Any]:
    """What slurmctld and slurmd make of the job; raises where Slurm refuses it."""
    clusters = {name: _names(name, cluster) for name, cluster in plan_json["topology"]["clusters"].items()}
    gpus = {name: cluster["node"]["devices"].get("count", 1) for name, cluster in plan_json["topology"]["clusters"].items()}
    placed = _placed(folder, clusters, gpus)
    used = list(dict.fromkeys(place.split("/")[0] for place in plan_json["placement"]))
    for nodes, gres in placed:
        cluster = next(name for name in used if nodes[0] in clusters[name])
        if not set(nodes) <= set(clusters[cluster]) or gres not in ("", f"gres:gpu:{gpus[cluster]}"):
            raise ValueError(f"{cluster}: placed on {nodes} with {gres}")
    if sum(len(nodes) for nodes, _ in placed) > MOST:
        return {}
    return _facts(folder, _run(folder, clusters))


def _names(name: str, cluster: dict[str, Any]) -> list[str]:
    """Slurm's names of a cluster's nodes: the topology's, else made up ones that no export can know."""
    hosts = cluster.get("hosts")
    if not hosts:
        return [f"cn-{name}-{index}" for index in range(cluster["nodes"])]
    with tempfile.NamedTemporaryFile("w") as conf:
        conf.write(f"ClusterName=peers\nSlurmctldHost=localhost\nAuthType=auth/none\nPluginDir={LIBRARIES / 'slurm-wlm'}\n")
        conf.flush()
        listed = ",".join([hosts] if isinstance(hosts, str) else hosts)
        return _call(["scontrol", "show", "hostnames", listed], _environment() | {"SLURM_CONF": conf.name}).split()


def _placed(folder: Path, clusters: dict[str, list[str]], gpus: dict[str, int]) -> list[tuple[list[str], str]]:
    """(nodes, GRES of each) of every component, in order, as slurmctld gives them to the job."""
    lines = [
        f"NodeName={name} CPUs=64 RealMemory=1000 Feature={cluster} State=CLOUD"
        for cluster, names in clusters.items()
        for name in names
    ]
    with _controller(lines) as (here, environment):
        for cluster, names in clusters.items():
            for first in range(0, len(names), 64):
                some = ",".join(names[first : first + 64])
                _call(["scontrol", "update", f"nodename={some}", f"gres=gpu:{gpus[cluster]}"], environment)
        _submit(folder / "job.sbatch", folder, here, environment)
        return _until(lambda: _components(environment), "slurmctld did not place the job")


def _components(environment: dict[str, str]) -> list[tuple[list[str], str]]:
    """The components that have their nodes; empty while one has none."""
    found = []
    for job in _call(["scontrol", "show", "job", "--oneliner"], environment).splitlines():
        nodes, gres = re.search(r" NodeList=(\S*)", job), re.search(r" TresPerNode=(\S*)", job)
        if nodes is None or not nodes[1] or nodes[1] == "(null)":
            return []
        found.append((_call(["scontrol", "show", "hostnames", nodes[1]], environment).split(), gres[1] if gres else ""))
    return found


def _run(folder: Path, clusters: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Node -> what torchrun was called with there."""
    with tempfile.TemporaryDirectory() as scratch:
        launch = Path(scratch) / "launch"
        shutil.copytree(folder, launch)
        job = launch / "job.sbatch"
        job.write_text(re.sub(r" --gpus-per-node=\d+", "", job.read_text()))
        (Path(scratch) / "seen").mkdir()
        stub = Path(scratch) / "torchrun"
        stub.write_text(TORCHRUN)
        stub.chmod(0o755)
        lines = [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={_port()} CPUs=4 RealMemory=1000 Feature={cluster}"
            for cluster, names in clusters.items()
            for name in names
        ]
        with _controller(lines) as (here, environment), contextlib.ExitStack() as nodes:
            environment |= {"PATH": f"{scratch}:{environment['PATH']}", "PEERS_SEEN": f"{scratch}/seen"}
            for name in (name for names in clusters.values() for name in names):
                arguments = [_program("slurmd"), "-N", name, "-D", "-d", _program("slurmstepd")]
                nodes.enter_context(_process(arguments, here / f"{name}.log", environment))
            _until(lambda: "idle" in _call(["sinfo", "-h", "-o", "%t"], environment).split(), "no slurmd came up")
            _submit(job, launch, here, environment)
            _until(lambda: not _call(["squeue", "-h"], environment), "the job did not end")
            told = (here / "job.out").read_text() if (here / "job.out").exists() else ""
        seen = {path.name: json.loads(path.read_text()) for path in (Path(scratch) / "seen").iterdir()}
    if not seen:
        raise ValueError(f"nothing was started: {told}")
    return seen


def _facts(folder: Path, seen: dict[str, dict[str, Any]]) -> dict[str, Any]:
    shim, table = _shim(folder), json.loads((folder / "ranks.json").read_text())
    hosts: dict[str, str] = {}
    environments: dict[str, dict[str, str]] = {}
    nodes = sorted(int(_option(told, "--node-rank")) for told in seen.values())
    if nodes != list(range(len(seen))):
        raise ValueError(f"node ranks are {nodes}")
    if any(told["arguments"][-2:] != ["train.py", "a word"] for told in seen.values()):
        raise ValueError("the script's arguments did not arrive")
    world = sum(int(_option(told, "--nproc-per-node")) for told in seen.values())
    for node, told in seen.items():
        variables = told["environment"] | {"WORLD_SIZE": str(world)}
        host = variables["HOLMES_HOST"]
        environments[host] = {key: value for key, value in variables.items() if re.match("NCCL_|GLOO_|[A-Z_]*VISIBLE", key)}
        for local in range(int(_option(told, "--nproc-per-node"))):
            hosts[shim.seat_of(table, variables | {"LOCAL_RANK": str(local)}, node)["RANK"]] = host
    return {"world_size": world, "hosts": hosts, "environment": environments}


def _option(told: dict[str, Any], name: str) -> str:
    return next(word.split("=", 1)[1] for word in told["arguments"] if word.startswith(f"{name}="))


def _shim(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("holmes_launch", folder / "holmes_launch.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _controller(nodes: list[str]) -> Iterator[tuple[Path, dict[str, str]]]:
    """A slurmctld over these nodes, its folder, and the environment of its clients."""
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        (here / "state").mkdir()
        facts = {"user": getpass.getuser(), "folder": here, "plugins": LIBRARIES / "slurm-wlm", "port": _port()}
        (here / "slurm.conf").write_text(CONF.format(nodes="\n".join(nodes), **facts))
        environment = _environment() | {"SLURM_CONF": str(here / "slurm.conf")}
        with _process([_program("slurmctld"), "-D"], here / "slurmctld.log", environment):
            _until(lambda: "is UP" in _call(["scontrol", "ping"], environment, (0, 1)), "slurmctld did not come up")
            yield here, environment


@contextlib.contextmanager
def _process(arguments: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    with log.open("w") as told:
        process = subprocess.Popen(arguments, stdout=told, stderr=told, env=environment, start_new_session=True)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _submit(job: Path, folder: Path, here: Path, environment: dict[str, str]) -> None:
    words = ["sbatch", f"--output={here}/job.out", str(job), "train.py", "a word"]
    _call(words, environment | {"HOLMES_FOLDER": str(folder)})


def _call(words: list[str], environment: dict[str, str], good: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run([_program(words[0]), *words[1:]], env=environment, text=True, capture_output=True)
    if done.returncode not in good:
        raise ValueError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _until(asked: Any, otherwise: str, seconds: float = 90) -> Any:
    end = time.monotonic() + seconds
    while not (found := asked()):
        if time.monotonic() > end:
            raise TimeoutError(otherwise)
        time.sleep(0.2)
    return found


def _program(name: str) -> str:
    """Debian calls the daemons slurmctld-wlm ..., and leaves the plain names to its alternatives."""
    places = (ROOT / folder / f"{name}{end}" for folder in ("usr/bin", "usr/sbin") for end in ("", "-wlm"))
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise FileNotFoundError(f"{name} is not under {ROOT}")
    return str(found)


def _environment() -> dict[str, str]:
    named = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    if str(ROOT) != "/":
        folders = (LIBRARIES, ROOT / "lib/x86_64-linux-gnu", LIBRARIES / "slurm-wlm")
        named |= {"LD_LIBRARY_PATH": ":".join(map(str, folders)), "PATH": f"{ROOT}/usr/bin:{ROOT}/usr/sbin:{named['PATH']}"}
    return named


def _port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
