"""The process groups of a rank: exactly those of the plan, each on the network interface of its NIC.

`new_group` sorts ranks unless `sort_ranks` is False (torch 2.6 and later); the order of ranks in the plan is the order of the
ring. Only members build a group, so that a rank of a large plan builds few groups. The backend follows from the devices of the
ranks (`holmes_sim.torch_backend.backends`). An NCCL group gets the network of its NIC, which a group across fabrics needs
(`holmes_sim.launching.nets`). NCCL reads the interfaces that it may use once per process, from environment variables.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist

from holmes_sim.launching.nets import net_name
from holmes_sim.torch_backend import communication
from holmes_sim.torch_backend.backends import GLOO, NCCL, backend
from holmes_sim.torch_backend.devices import synchronize
from sim.errors import HolmesError
from sim.plan.derived_groups import embedding_groups, gradient_groups
from sim.plan.groups import Group, with_transport
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.units import Seconds

INTERFACES = "HOLMES_SIM_INTERFACES"
"""Environment variable with the names of this rank's network interfaces by NIC type, as JSON: {"infiniband": ["ib0"],
"ethernet": ["eth0"]}."""
GLOO_INTERFACES = "GLOO_SOCKET_IFNAME"
"""Environment variable with the interfaces that gloo uses for the next group."""


def groups_of(plan: Plan | PipelinesPlan, rank: int) -> Iterator[Group]:
    """The groups of a rank (`_every_group`)."""
    return (group for group in _every_group(plan) if rank in group.ranks)


def _every_group(plan: Plan | PipelinesPlan) -> Iterator[Group]:
    """Tp, cp, etp, ep and pp groups of the plan, then the groups that reduce gradients and tied embeddings.

    The order is the same on all ranks. Otherwise two ranks could wait for each other in different groups.
    """
    if isinstance(plan, PipelinesPlan):
        for first, pipeline in zip(plan.first_ranks, plan.pipelines, strict=True):
            for group in _every_group(pipeline):
                yield replace(group, ranks=tuple(first + rank for rank in group.ranks))
        for sections in (plan.gradient_groups(), plan.expert_gradient_groups()):
            yield from (group for _, groups in sections for group in groups)
        return
    config = plan.config
    listed = [group for group in plan.groups if group.kind in ("tp", "cp", "etp", "ep", "pp")]
    shared = list(gradient_groups(plan))
    if config.zero_shard_size is not None:
        shared = list(_blocks_and_copies(plan, shared))
    tied = embedding_groups(plan, plan.groups) if config.pp > 1 and plan.workload.model.tied_embeddings else ()
    yield from (group for group in (*listed, *shared, *tied) if len(group.ranks) > 1)


def numbered(plan: Plan | PipelinesPlan, rank: int) -> Iterator[tuple[Group, int]]:
    """The groups of a rank, each with the number of groups that the rank must have made before it.

    torch names a group after its ranks and the number of groups that a rank has made, so all its ranks must have made as many.
    Ranks of stages with unlike degrees have unlike numbers of groups."""
    made = [0] * len(plan.placement)
    for group in _every_group(plan):
        number = max(made[member] for member in group.ranks)
        for member in group.ranks:
            made[member] = number + 1
        if rank in group.ranks:
            yield group, number


def _blocks_and_copies(plan: Plan, groups: Sequence[Group]) -> Iterator[Group]:
    """The blocks of ranks over which ZeRO shards, of kind dp, then the ranks that hold equal shards, of kind copies
    (`sim.network.gradient_routes.gradient_parts`)."""
    shards = plan.config.shards
    for group in groups:
        if len(group.ranks) == shards:
            yield group
            continue
        ranks = sorted(group.ranks)
        blocks = [tuple(ranks[first : first + shards]) for first in range(0, len(ranks), shards)]
        parts = [*(("dp", block) for block in blocks), *(("copies", copies) for copies in zip(*blocks, strict=True))]
        yield from with_transport(plan.fleet, plan.placement, ((kind, some, group.collective) for kind, some in parts))


def of_kind(groups: dict[str, dist.ProcessGroup], kind: str) -> list[dist.ProcessGroup]:
    """The groups of a rank of one kind, among those of `build`: one, or one for each peer on a stage with a larger tp or dp."""
    return [group for name, group in groups.items() if name.partition(" ")[0] == kind]


def interfaces(environment: dict[str, str] | None = None) -> dict[str, list[str]]:
    """Names of network interfaces by NIC type, from the environment. Raises HolmesError where the variable is malformed."""
    text = (os.environ if environment is None else environment).get(INTERFACES, "{}")
    try:
        found = json.loads(text)
        assert all(isinstance(names, list) and all(isinstance(n, str) for n in names) for names in found.values())
    except (ValueError, AssertionError, AttributeError):
        raise HolmesError(f'{INTERFACES}: {text!r} should be JSON such as {{"ethernet": ["eth0"]}}') from None
    return {str(kind): list(names) for kind, names in found.items()}


def build(
    plan: Plan | PipelinesPlan,
    rank: int,
    device: torch.device,
    on: Sequence[str],
    connect_timeout: Seconds,
    timeout: Seconds,
    on_timeout: Callable[[str], None],
) -> dict[str, dist.ProcessGroup]:
    """Process groups of a rank by kind; further groups of a kind (of messages to stages with larger degrees, of gradients of
    further sections in unlike pipelines) have a number behind it: `pp 1`. `on[r]` is the kind of device of rank `r`; `timeout`
    limits each collective or message.

    Raises HolmesError for a group that cannot connect. If a group has not connected after `connect_timeout` seconds,
    `on_timeout` is called with a message and must end the rank: if no peer answers, gloo applies its own timeout to each
    attempt, not to their sum.
    """
    known, found, alone = interfaces(), dict[str, dist.ProcessGroup](), 0
    for group, number in numbered(plan, rank):
        for _ in range(number - len(found) - alone):
            dist.new_group([rank], backend=GLOO, use_local_synchronization=True)
            alone += 1
        made = connected(group, backend(plan, group, on), known, device, (connect_timeout, timeout), on_timeout)
        alike = len(of_kind(found, group.kind))
        found[f"{group.kind} {alike}" if alike else group.kind] = made
    return found


def connected(
    group: Group,
    chosen: str,
    known: dict[str, list[str]],
    device: torch.device,
    timeouts: tuple[Seconds, Seconds],
    on_timeout: Callable[[str], None],
) -> dist.ProcessGroup:
    """The process group of `group`, with the backend `chosen`. `known`: `interfaces`; `timeouts`: `connect_timeout` and
    `timeout` of `build`. Raises HolmesError where it cannot connect."""
    connect_timeout, timeout = timeouts
    what = f"the {group.kind} group of ranks {list(group.ranks)} on {group.nic}"
    timer = threading.Timer(connect_timeout, on_timeout, (f"{what} has not connected within {connect_timeout:g} s",))
    timer.daemon = True
    timer.start()
    try:
        made = _new_group(group, chosen, known.get(group.nic, []), timedelta(seconds=connect_timeout))
        communication.all_reduce(torch.zeros(1, device=device), made)  # connect before anything is timed
        synchronize(device)
    except RuntimeError as error:
        reason = str(error).splitlines()[0].rsplit("] ", 1)[-1]
        raise HolmesError(f"{what} cannot connect: {reason}") from None
    finally:
        timer.cancel()
    made.set_timeout(timedelta(seconds=timeout))
    return made


def _new_group(group: Group, chosen: str, names: list[str], connect_timeout: timedelta) -> dist.ProcessGroup:
    with gloo_interfaces(names):
        made: dist.ProcessGroup | None = dist.new_group(
            list(group.ranks),
            backend=chosen,
            timeout=connect_timeout,
            use_local_synchronization=True,
            sort_ranks=False,
            group_desc=group.kind,
            pg_options=nccl_options(net_name(group)) if chosen == NCCL else None,
        )
        assert made is not None
    return made


def nccl_options(name: str | None) -> object:
    """NCCL options of a group on the given NCCL network; with None NCCL chooses."""
    options = dist.ProcessGroupNCCL.Options()
    if name is not None:
        options.config.net_name = name  # type: ignore[attr-defined]
    return options


@contextmanager
def gloo_interfaces(names: list[str]) -> Iterator[None]:
    """A context in which gloo uses these interfaces. They are set by environment variable, as `new_group` passes gloo no
    options."""
    before = os.environ.get(GLOO_INTERFACES)
    if names:
        os.environ[GLOO_INTERFACES] = ",".join(names)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(GLOO_INTERFACES, None)
        else:
            os.environ[GLOO_INTERFACES] = before
