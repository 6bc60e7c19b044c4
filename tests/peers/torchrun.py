"""torchrun: its own parser reads each host's line, the exported shim gives each process its rank, torch builds the groups.

Read by torch: `world_size` and `hosts` (torch.distributed.run.parse_args of every launch/*.sh, as static rendezvous numbers the
processes; RANK is then the shim's, run as it lies in the folder), and for worlds of at most 16 ranks `groups` of tp, cp, dp and
pp (init_device_mesh over fake process groups, once as every rank).
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import run
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

MOST_RANKS = 16
"""A mesh of n ranks is built n times."""


def versions() -> dict[str, str]:
    """Programs that read, and their versions."""
    return {"torch": torch.__version__}


def read(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Hosts of the ranks, and the groups of a mesh."""
    spec = importlib.util.spec_from_file_location("shim", folder / "holmes_launch.py")
    assert spec is not None
    assert spec.loader is not None
    shim = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shim)
    table = shim.json.loads((folder / "ranks.json").read_text(encoding="utf-8"))
    lines = dict(_lines(folder))
    world = sum(int(line.nproc_per_node) for line in lines.values())
    assert {int(line.nnodes) for line in lines.values()} == {len(lines)}
    assert sorted(line.node_rank for line in lines.values()) == list(range(len(lines)))
    first = next(name for name, line in lines.items() if line.node_rank == 0)
    assert {line.master_addr for line in lines.values()} == {first}
    hosts: dict[str, str] = {}
    for name, line in lines.items():
        size = line.nproc_per_node
        for local in range(int(size)):
            given = {"HOLMES_SCRIPT": name, "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": size, "LOCAL_RANK": str(local)}
            rank = shim.seat_of(table, shim.host_of(table, given, name), given)["RANK"]
            assert hosts.setdefault(rank, name) == name
    assert hosts["0"] == first, "rank 0 is not on the master"
    found: dict[str, Any] = {"world_size": world, "hosts": hosts}
    if world <= MOST_RANKS:
        found["groups"] = _groups(plan["config"], world)
    return found


def _lines(folder: Path) -> Iterator[tuple[str, Any]]:
    """(host, torchrun's reading of its line); variables of the shell stand at what they are unless set."""
    for script in sorted((folder / "launch").glob("*.sh")):
        line = next(line for line in script.read_text(encoding="utf-8").splitlines() if line.startswith("exec torchrun "))
        words = shlex.split(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", line))
        yield script.name.removesuffix(".sh"), run.parse_args(words[2:])


def _groups(config: dict[str, Any], world: int) -> dict[str, list[list[int]]]:
    degrees = {name: config.get(name, 1) for name in ("pp", "dp", "cp", "tp")}
    found: dict[str, set[tuple[int, ...]]] = {name: set() for name, degree in degrees.items() if degree > 1}
    for rank in range(world):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
        mesh = init_device_mesh("cpu", tuple(degrees.values()), mesh_dim_names=tuple(degrees))
        for name, groups in found.items():
            groups.add(tuple(dist.get_process_group_ranks(mesh[name].get_group())))
        dist.destroy_process_group()
    return {name: sorted(map(list, groups)) for name, groups in found.items()}
