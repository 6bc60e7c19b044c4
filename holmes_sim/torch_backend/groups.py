"""The process groups of a rank, exactly those that the plan lists, each on the interface of its NIC.

`new_group` sorts ranks unless told otherwise (torch 2.6 and later: `sort_ranks`); the plan's order is the ring's order. Only
members build a group, so that a rank of a large plan builds a handful. Each has the backend that its ranks' devices allow
(`holmes_sim.torch_backend.backends`), and one of NCCL the network of its NIC, as one across fabrics must be told
(`holmes_sim.launching.nets`). Which interfaces NCCL goes over it reads once a process, from its own environment variables.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from holmes_sim.launching.nets import net_name
from holmes_sim.torch_backend import exchanges
from holmes_sim.torch_backend.backends import NCCL, backend
from holmes_sim.torch_backend.devices import settle
from sim.errors import HolmesError
from sim.plan.derived_groups import embedding_groups, gradient_groups
from sim.plan.groups import Group
from sim.plan.plan import Plan
from sim.units import Seconds

INTERFACES = "HOLMES_SIM_INTERFACES"
"""Names of this rank's network interfaces by NIC type, as JSON: {"infiniband": ["ib0"], "ethernet": ["eth0"]}."""
GLOO = "GLOO_SOCKET_IFNAME"
"""The interfaces that gloo uses for a group that is built."""


def groups_of(plan: Plan, rank: int) -> Iterator[Group]:
    """The groups a rank is in: as the plan lists them, then those over which gradients and tied embeddings are summed.

    The order is the same on all ranks, so that no two wait for each other with different groups in hand.
    """
    config = plan.config
    listed = [group for group in plan.groups if group.kind in ("tp", "pp")]
    shared = [group for group in gradient_groups(plan) if group.kind == "dp"]
    tied = embedding_groups(plan.groups) if config.pp > 1 and plan.workload.model.tied_embeddings else ()
    for group in (*listed, *shared, *tied):
        if rank in group.ranks and len(group.ranks) > 1:
            yield group


def interfaces(environment: dict[str, str] | None = None) -> dict[str, list[str]]:
    """Interfaces by NIC type, from the environment. Raises HolmesError."""
    text = (os.environ if environment is None else environment).get(INTERFACES, "{}")
    try:
        found = json.loads(text)
        assert all(isinstance(names, list) and all(isinstance(n, str) for n in names) for names in found.values())
    except (ValueError, AssertionError, AttributeError):
        raise HolmesError(f'{INTERFACES}: {text!r} should be JSON such as {{"ethernet": ["eth0"]}}') from None
    return {str(kind): list(names) for kind, names in found.items()}


def build(
    plan: Plan,
    rank: int,
    device: torch.device,
    on: Sequence[str],
    within: Seconds,
    longest: Seconds,
    late: Callable[[str], None],
) -> dict[str, dist.ProcessGroup]:
    """Process groups by kind, for a rank on its device, where rank `r` is on a device of kind `on[r]`. What they exchange may
    take `longest`.

    Raises HolmesError for one that does not connect. Where it has not `within` so long, `late` is told, which ends the rank:
    where nobody answers, gloo's own timeout is that of each attempt, not of all of them."""
    known, found = interfaces(), dict[str, dist.ProcessGroup]()
    for group in groups_of(plan, rank):
        what = f"the {group.kind} group of ranks {list(group.ranks)} on {group.nic}"
        timer = threading.Timer(within, late, (f"{what} has not connected within {within:g} s",))
        timer.daemon = True
        timer.start()
        try:
            made = _made(group, backend(plan, group, on), known.get(group.nic, []), timedelta(seconds=within))
            exchanges.all_reduce(torch.zeros(1, device=device), made)  # before anything is timed
            settle(device)
        except RuntimeError as error:
            told = str(error).splitlines()[0].rsplit("] ", 1)[-1]
            raise HolmesError(f"{what} cannot connect: {told}") from None
        finally:
            timer.cancel()
        made.set_timeout(timedelta(seconds=longest))
        found[group.kind] = made
    return found


def _made(group: Group, chosen: str, names: list[str], within: timedelta) -> dist.ProcessGroup:
    with _over(names):
        made: dist.ProcessGroup | None = dist.new_group(
            list(group.ranks),
            backend=chosen,
            timeout=within,
            use_local_synchronization=True,
            sort_ranks=False,
            group_desc=group.kind,
            pg_options=_over_net(net_name(group)) if chosen == NCCL else None,
        )
        assert made is not None
    return made


def _over_net(name: str | None) -> object:
    """NCCL's options for a group over one of its networks; where there is no name NCCL chooses."""
    options = dist.ProcessGroupNCCL.Options()
    if name is not None:
        options.config.net_name = name  # type: ignore[attr-defined]
    return options


@contextmanager
def _over(names: list[str]) -> Iterator[None]:
    """Gloo goes over these interfaces, meanwhile. `new_group` hands it no options, so its environment variable tells it."""
    before = os.environ.get(GLOO)
    if names:
        os.environ[GLOO] = ",".join(names)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(GLOO, None)
        else:
            os.environ[GLOO] = before
