"""Start a training script as the rank that a plan says.

    torchrun ... holmes_launch.py train.py ARGUMENTS        (or: holmes_launch.py -m package.module ARGUMENTS)
    holmes_launch.py --check                                (is this host the one whose script was started?)

Written by holmes-sim beside ranks.json; needs torch (2.6 or later) and nothing else. It looks up the host in ranks.json, sets
RANK, and gives every process group its network: NCCL refuses to join InfiniBand with RoCE and does not fall back to TCP, and
NCCL_NET in the environment would overrule all groups (NVIDIA/nccl, src/transport/net_ib, src/init.cc). Groups across vendors go
over gloo. What a script says itself (`net_name`, another backend) stands. Set HOLMES_HOST where the host's name is not the
plan's (in containers).
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import os
import runpy
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Table = dict[str, Any]
Arguments = dict[str, Any]
VERBS = ("infiniband", "roce")
"""Fabrics that NCCL reaches by its own network IB; others need a plug-in of a name of its own."""
ONE_VENDORS = ("nccl", "hccl")
"""Backends that join devices of one vendor only (RCCL is called nccl as well)."""


def main() -> None:
    """Take the rank's place, then run the script."""
    try:
        table = json.loads((Path(__file__).parent / "ranks.json").read_text(encoding="utf-8"))
        host = host_of(table, dict(os.environ), socket.gethostname())
        if sys.argv[1:] == ["--check"]:
            return
        if len(sys.argv) < 2 or sys.argv[1:] == ["-m"]:
            raise ValueError("which script? holmes_launch.py train.py ..., or holmes_launch.py -m package.module ...")
        os.environ.update(seat_of(table, host, dict(os.environ)))
    except (OSError, ValueError) as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            sys.stderr.write(f"holmes_launch: {error}\n")
        sys.exit(2)
    steer(table)
    module = sys.argv[1] == "-m"
    sys.argv = sys.argv[2:] if module else sys.argv[1:]
    sys.path[0] = os.getcwd() if module else str(Path(sys.argv[0]).resolve().parent)  # noqa: PTH109 - as python does
    if module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


def host_of(table: Table, environment: dict[str, str], name: str) -> Table:
    """The host that this is, by its name or up to the first dot. Raises ValueError where it is not the plan's."""
    called = environment.get("HOLMES_HOST") or name
    found = [host for host in table["hosts"] if called in (host["host"], host["node"])]
    found = found or [host for host in table["hosts"] if called.split(".")[0] == host["host"].split(".")[0]]
    if len(found) != 1:
        known = [str(host["host"]) for host in table["hosts"]]
        shown = ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
        raise ValueError(f"host {called!r} is {'not' if not found else 'more than one'} of {shown}; HOLMES_HOST may name it")
    meant = environment.get("HOLMES_SCRIPT", found[0]["host"])
    if meant != found[0]["host"]:
        raise ValueError(f"the script of {meant} was started on {called}, which is {found[0]['host']} of the plan")
    if environment.get("NCCL_NET") and network(table, None) == "Socket":
        raise ValueError(f"NCCL_NET={environment['NCCL_NET']} overrules the network of every group; unset it")
    host: Table = found[0]
    return host


def seat_of(table: Table, host: Table, environment: dict[str, str]) -> dict[str, str]:
    """The variables of this process's rank. Raises ValueError where the launch is not the plan's."""
    size, local = environment.get("WORLD_SIZE"), environment.get("LOCAL_RANK")
    if size is None or local is None:
        raise ValueError("WORLD_SIZE and LOCAL_RANK are not set; start it by torchrun, as launch/*.sh does")
    here = environment.get("LOCAL_WORLD_SIZE", str(len(host["ranks"])))
    if int(here) != len(host["ranks"]):
        raise ValueError(f"the launch has {here} ranks on {host['host']}, the plan {len(host['ranks'])}")
    if int(size) != table["world_size"]:
        raise ValueError(f"the launch has {size} ranks, the plan {table['world_size']}")
    return {"RANK": str(host["ranks"][int(local)]), "HOLMES_NODE": str(host["node"])}


def network(table: Table, ranks: list[int] | None) -> str | None:
    """How a group of ranks (None: all) is joined: gloo (across vendors), IB, Socket; None where NCCL is to choose."""
    own = [host for host in table["hosts"] if ranks is None or not set(ranks).isdisjoint(host["ranks"])]
    if len({host["vendor"] for host in own}) > 1 and not table["unified"]:
        return "gloo"
    if len(own) == 1:
        return None
    common = set.intersection(*(set(host["fabrics"]) for host in own))
    if not common:
        return "Socket"
    slowest = {name: min(host["fabrics"][name] for host in own) for name in common}
    _, kind = max((rate, name.rsplit("-", 1)[0]) for name, rate in slowest.items())
    return "IB" if kind in VERBS else None


def steer(table: Table) -> None:
    """Give every process group that is built from now on its network, wherever its builder was imported before."""
    from torch.distributed import distributed_c10d

    world = World(table)
    changes = {"init_process_group": world.init, "new_group": world.group, "split_group": world.split}
    for name, change in changes.items():
        plain = getattr(distributed_c10d, name)
        steered = _changed(plain, change)
        for module in list(sys.modules.values()):
            if vars(module).get(name) is plain:
                setattr(module, name, steered)


def _changed(plain: Any, change: Callable[[Arguments], None]) -> Any:
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def steered(*given: Any, **named: Any) -> Any:
        call = signature.bind(*given, **named)
        change(call.arguments)
        return plain(*call.args, **call.kwargs)

    return steered


class World:
    """Changes the arguments of torch's builders of groups. `backend` is what the script asked for the group of all ranks."""

    def __init__(self, table: Table):
        self.table, self.backend = table, "undefined"

    def init(self, arguments: Arguments) -> None:
        """Of init_process_group. Across vendors no communicator is bound to a device, from which groups could be split."""
        self.backend = str(arguments.get("backend") or "undefined").lower()
        how = network(self.table, None)
        if how == "gloo" and self._of_one_vendor(self.backend):
            arguments.update(backend="gloo", pg_options=None, device_id=None)
        elif self._is_told(how, self.backend):
            arguments["pg_options"] = _options(arguments.get("pg_options"), how, arguments.get("timeout"))

    def group(self, arguments: Arguments) -> None:
        """Of new_group. Where gloo joins the world because of its vendors, groups of one vendor get what was asked for."""
        if arguments.get("ranks") is not None:
            arguments["ranks"] = [int(rank) for rank in arguments["ranks"]]
        how = network(self.table, arguments.get("ranks"))
        backend = str(arguments.get("backend") or self.backend).lower()
        if how == "gloo" and self._of_one_vendor(backend):
            arguments.update(backend="gloo", pg_options=None)
            return
        if network(self.table, None) == "gloo":
            arguments["backend"] = backend
        if self._is_told(how, backend):
            arguments["pg_options"] = _options(arguments.get("pg_options"), how, arguments.get("timeout"))

    def split(self, arguments: Arguments) -> None:
        """Of split_group, which DeviceMesh takes where init_process_group was given a device: parts would have the network of
        the whole. NCCL lets them have their own unless resources are shared (src/init.cc, commAlloc)."""
        import torch
        import torch.distributed as dist

        parent: Any = arguments.get("parent_pg") or dist.group.WORLD
        members, mine = dist.get_process_group_ranks(parent), dist.get_rank(parent)
        parts = arguments.get("split_ranks") or [list(range(len(members)))]
        part = next((ranks for ranks in parts if mine in ranks), parts[0])
        how = network(self.table, [members[rank] for rank in part])
        if arguments.get("pg_options") is not None:
            if self._is_told(how, self.backend):
                arguments["pg_options"] = _options(arguments["pg_options"], how, None)
            return
        if self._is_told("IB", self.backend):
            device: Any = torch.accelerator.current_accelerator()
            inherited = parent._get_backend(device).options if how else None
            options = _options(inherited, None, arguments.get("timeout"))
            if how in ("IB", "Socket"):
                options.config.net_name = how
            arguments["pg_options"] = options

    def _of_one_vendor(self, backend: str) -> bool:
        return backend == "undefined" or any(name in backend for name in ONE_VENDORS)

    def _is_told(self, how: str | None, backend: str) -> bool:
        """Whether NCCL is used, and told its network."""
        import torch.distributed as dist

        return how in ("IB", "Socket") and (backend == "undefined" or "nccl" in backend) and dist.is_nccl_available()


def _options(options: Any, how: str | None, timeout: Any) -> Any:
    """NCCL's options with a network where none is said; a copy, because a script may give one object to many groups."""
    from torch.distributed import ProcessGroupNCCL

    if options is None:
        options = ProcessGroupNCCL.Options()
        if timeout is not None:
            options._timeout = timeout
    elif isinstance(options, ProcessGroupNCCL.Options):
        options = copy.deepcopy(options)
    else:
        return options
    if how is not None and options.config.net_name is None:
        options.config.net_name = how
    return options


if __name__ == "__main__":
    main()
