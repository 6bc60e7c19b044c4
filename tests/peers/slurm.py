"""Slurm reads an exported batch job: slurmctld places it, and slurmd starts its tasks.

Read by slurmctld, over nodes of State=CLOUD that never come up: each component's nodes and GPUs; other nodes than its cluster's
raise. `hosts` and `world_size`: up to MOST hosts the job is run by slurmd, every node a slurmd on the loopback (without the
GPUs, for which slurmd wants device files); beyond that by bash, where a stub of srun starts a task on each of slurmctld's
nodes. torchrun is a stub that prints what it was called with; the ranks of the host of a node are the rank table's.

Debian packages: slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge and what they need, version 22.05. Installed, or
unpacked with `dpkg -x` under the folder that SLURM_ROOT names. Nothing listens beyond the loopback.
"""

from __future__ import annotations

import contextlib
import getpass
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
from typing import Any

ROOT = Path(os.environ.get("SLURM_ROOT", "/"))
LIBRARIES = ROOT / "usr/lib/x86_64-linux-gnu"
MOST = 4
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
#!/bin/sh
printf '%s\\n' "$HOLMES_HOST" "$@" > "$PEERS_SEEN/$SLURMD_NODENAME"
"""
SRUN = """\
#!/usr/bin/env python3
import os, subprocess, sys
nodes, task, words = iter(os.environ["PEERS_NODES"].split()), 0, sys.argv[1:]
while words:
    end = words.index(":") if ":" in words else len(words)
    one, words = words[:end], words[end + 1:]
    for _ in range(int(next(word for word in one if word.startswith("--nodes="))[8:])):
        own = {"SLURM_PROCID": str(task), "SLURMD_NODENAME": next(nodes)}
        subprocess.run(one[one.index("bash"):], env=os.environ | own, check=True)
        task += 1
"""


def versions() -> dict[str, str]:
    """Slurm's own version."""
    return {"slurm": subprocess.check_output([_program("slurmctld"), "-V"], text=True, env=_environment()).split()[-1]}


def read(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """What slurmctld and slurmd make of the job; raises where Slurm refuses it."""
    clusters = {name: _names(name, cluster) for name, cluster in plan["topology"]["clusters"].items()}
    gpus = {name: cluster["node"]["devices"].get("count", 1) for name, cluster in plan["topology"]["clusters"].items()}
    placed = _placed(folder, clusters, gpus)
    used = list(dict.fromkeys(place.split("/")[0] for place in plan["placement"]))
    for nodes, gres in placed:
        cluster = next(name for name in used if nodes[0] in clusters[name])
        if not set(nodes) <= set(clusters[cluster]) or gres not in ("", f"gres:gpu:{gpus[cluster]}"):
            raise ValueError(f"{cluster}: placed on {nodes} with {gres}")
    nodes = [node for component, _ in placed for node in component]
    return _facts(folder, _run(folder, clusters) if len(nodes) <= MOST else _by_bash(folder, nodes))


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


def _by_bash(folder: Path, nodes: list[str]) -> dict[str, list[str]]:
    """Node -> what torchrun was called with there, where the job runs on these nodes, in Slurm's order."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | _stubs(Path(scratch), {"torchrun": TORCHRUN, "srun": SRUN})
        own = {"HOLMES_FOLDER": str(folder), "SLURMD_NODENAME": nodes[0], "PEERS_NODES": " ".join(nodes)}
        subprocess.run(["bash", str(folder / "job.sbatch"), "train.py", "a word"], env=environment | own, check=True)
        return _seen(Path(scratch))


def _stubs(scratch: Path, programs: dict[str, str]) -> dict[str, str]:
    """Variables under which these programs are found, and tell what they see."""
    (scratch / "seen").mkdir()
    for name, text in programs.items():
        (scratch / name).write_text(text)
        (scratch / name).chmod(0o755)
    return {"PATH": f"{scratch}:{os.environ['PATH']}", "PEERS_SEEN": f"{scratch}/seen"}


def _seen(scratch: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text().splitlines() for path in (scratch / "seen").iterdir()}


def _run(folder: Path, clusters: dict[str, list[str]]) -> dict[str, list[str]]:
    """Node -> what torchrun was called with there, by slurmd."""
    with tempfile.TemporaryDirectory() as scratch:
        launch = Path(scratch) / "launch"
        shutil.copytree(folder, launch)
        job = launch / "job.sbatch"
        job.write_text(re.sub(r" --gpus-per-node=\d+", "", job.read_text()))
        stubs = _stubs(Path(scratch), {"torchrun": TORCHRUN})
        lines = [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={_port()} CPUs=4 RealMemory=1000 Feature={cluster}"
            for cluster, names in clusters.items()
            for name in names
        ]
        with _controller(lines) as (here, environment), contextlib.ExitStack() as nodes:
            environment |= stubs | {"PATH": f"{scratch}:{environment['PATH']}"}
            for name in (name for names in clusters.values() for name in names):
                arguments = [_program("slurmd"), "-N", name, "-D", "-d", _program("slurmstepd")]
                nodes.enter_context(_process(arguments, here / f"{name}.log", environment))
            _until(lambda: "idle" in _call(["sinfo", "-h", "-o", "%t"], environment).split(), "no slurmd came up")
            _submit(job, launch, here, environment)
            _until(lambda: not _call(["squeue", "-h"], environment), "the job did not end")
            output = (here / "job.out").read_text() if (here / "job.out").exists() else ""
        seen = _seen(Path(scratch))
    if not seen:
        raise ValueError(f"nothing was started: {output}")
    return seen


def _facts(folder: Path, seen: dict[str, list[str]]) -> dict[str, Any]:
    table = json.loads((folder / "ranks.json").read_text())
    ranks = {host["host"]: host["ranks"] for host in table["hosts"]}
    hosts: dict[str, str] = {}
    nodes = []
    for node, (host, *words) in seen.items():
        options = dict(word.split("=", 1) for word in words if "=" in word)
        if words[-2:] != ["train.py", "a word"]:
            raise ValueError(f"{node}: the script's arguments did not arrive: {words}")
        if int(options["--nproc-per-node"]) != len(ranks[host]):
            raise ValueError(f"{host} has {options['--nproc-per-node']} processes")
        nodes.append(int(options["--node-rank"]))
        hosts |= {str(rank): host for rank in ranks[host]}
    if sorted(nodes) != list(range(len(nodes))):
        raise ValueError(f"node ranks are {sorted(nodes)}")
    return {"world_size": len(hosts), "hosts": hosts}


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
    with log.open("w") as output:
        process = subprocess.Popen(arguments, stdout=output, stderr=output, env=environment, start_new_session=True)
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


def _until(condition: Any, otherwise: str, seconds: float = 90) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
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
