"""Start a training script as the rank that a plan says.

    torchrun ... holmes_launch.py train.py ARGUMENTS        (or: holmes_launch.py -m package.module ARGUMENTS)

Written by holmes-sim beside ranks.json; needs torch and nothing else. It looks up the host in ranks.json, sets RANK, and lets
every process group that no RDMA fabric joins go over sockets: NCCL refuses to join InfiniBand with RoCE and does not fall
back to TCP, and NCCL_NET in the environment would overrule all groups (NVIDIA/nccl, src/transport/net_ib, src/init.cc).
Groups across vendors go over gloo. Set HOLMES_HOST where the host's name is not the plan's (in containers).
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import socket
import sys
from pathlib import Path
from typing import Any

Table = dict[str, Any]


def main() -> None:
    """Take the rank's place, then run the script."""
    table = json.loads((Path(__file__).parent / "ranks.json").read_text(encoding="utf-8"))
    try:
        seat = seat_of(table, dict(os.environ), socket.gethostname())
    except ValueError as error:
        sys.exit(f"holmes_launch: {error}")
    os.environ.update(seat)
    if len(sys.argv) < 2 or sys.argv[1:] == ["-m"]:
        sys.exit("holmes_launch: which script? holmes_launch.py train.py ..., or holmes_launch.py -m package.module ...")
    steer(table)
    module = sys.argv[1] == "-m"
    sys.argv = sys.argv[2:] if module else sys.argv[1:]
    if module:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as python -m does
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


def seat_of(table: Table, environment: dict[str, str], name: str) -> dict[str, str]:
    """The variables of this process's rank. Raises ValueError where the launch is not the plan's."""
    called = environment.get("HOLMES_HOST") or name
    host = next((host for host in table["hosts"] if called in (host["host"], host["node"])), None)
    host = host or next((host for host in table["hosts"] if called.split(".")[0] == host["host"].split(".")[0]), None)
    if host is None:
        known = ", ".join(str(host["host"]) for host in table["hosts"][:8])
        raise ValueError(f"host {called!r} is not in the plan, which has {known} ...; HOLMES_HOST may name it")
    meant = environment.get("HOLMES_SCRIPT", host["host"])
    if meant != host["host"]:
        raise ValueError(f"the script of {meant} was started on {called}, which is {host['host']} of the plan")
    local, size = int(environment.get("LOCAL_RANK", "-1")), int(environment.get("WORLD_SIZE", "-1"))
    if size != table["world_size"]:
        raise ValueError(f"the launch has {size} ranks, the plan {table['world_size']}")
    if not 0 <= local < len(host["ranks"]):
        raise ValueError(f"local rank {local} on {host['host']}: the plan has {len(host['ranks'])} ranks there")
    return {"RANK": str(host["ranks"][local]), "HOLMES_NODE": str(host["node"])}


def network(table: Table, ranks: list[int] | None) -> str:
    """How a group of ranks (None: all) is joined: host, gloo (across vendors), IB, Socket, or RDMA by a plug-in of its own."""
    own = [host for host in table["hosts"] if ranks is None or not set(ranks).isdisjoint(host["ranks"])]
    if len({host["vendor"] for host in own}) > 1 and not table["unified"]:
        return "gloo"
    if len(own) == 1:
        return "host"
    common = set.intersection(*(set(host["fabrics"]) for host in own))
    if not common:
        return "Socket"
    kinds = {fabric.rsplit("-", 1)[0] for fabric in common}
    return "IB" if kinds & {"infiniband", "roce"} else "RDMA"


def steer(table: Table) -> None:
    """Give every process group that is built from now on its network."""
    import torch.distributed as dist
    from torch.distributed import device_mesh, distributed_c10d

    for name, wrapped in (("init_process_group", _initial), ("new_group", _further)):
        steered = wrapped(table, getattr(distributed_c10d, name))
        for module in (distributed_c10d, dist, device_mesh):
            if hasattr(module, name):
                setattr(module, name, steered)


def _initial(table: Table, plain: Any) -> Any:
    @functools.wraps(plain)
    def init_process_group(backend: str | None = None, *given: Any, **named: Any) -> Any:
        how = network(table, None)
        if how == "gloo" and backend == "nccl":
            backend = "gloo"
        elif _steers(how, backend, named):
            named["pg_options"] = _options(how)
        return plain(backend, *given, **named)

    return init_process_group


def _further(table: Table, plain: Any) -> Any:
    @functools.wraps(plain)
    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None, **named: Any) -> Any:
        how = network(table, None if ranks is None else list(ranks))
        if how == "gloo" and backend in (None, "nccl"):
            backend, pg_options = "gloo", None
        elif _steers(how, backend, {"pg_options": pg_options}):
            pg_options = _options(how)
        return plain(ranks, timeout=timeout, backend=backend, pg_options=pg_options, **named)

    return new_group


def _steers(how: str, backend: Any, named: Table) -> bool:
    """Whether NCCL is to be told: it is used, and nobody has told it before (Megatron-LM's nccl.yaml does)."""
    import torch.distributed as dist

    nccl = backend is None or "nccl" in str(backend)
    return how in ("IB", "Socket") and nccl and dist.is_nccl_available() and named.get("pg_options") is None


def _options(how: str) -> Any:
    from torch.distributed import ProcessGroupNCCL

    options: Any = ProcessGroupNCCL.Options()
    options.config.net_name = how
    return options


if __name__ == "__main__":
    main()
