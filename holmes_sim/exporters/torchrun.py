"""torchrun: any torch script, with each process at its rank in the plan."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import environment, hosts, torch_launch, torchrun_islands
from holmes_sim.launching.folder import Launch
from holmes_sim.torch_backend import supported
from holmes_sim.torch_backend.islands import supported as exchanges
from planner.target import Vendors
from sim.plan.islands import IslandsPlan
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TITLE = "torchrun"
READERS = "torch 2.13"
ISLANDS_TITLE = "torchrun and holmes-sim run"
ISLANDS_READERS = "one launch of four ranks by torchrun (torch 2.13) has run such a plan on one machine; none on several hosts"
ORDER = 30
KIND = "launcher"
VENDORS: Vendors = "any"
EXCLUDED_VENDORS: tuple[str, ...] = ()


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Nothing: it starts any program."""
    return iter(())


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """What NCCL's environment cannot express; the shim assigns ranks for any placement."""
    return environment.unsupported(plan)


def launch(plan: Plan) -> Launch:
    """Environment and script of every host, rank table and shim. The user provides the training script."""
    return Launch(torch_launch.files(plan), torch_launch.HOW.format(words="train.py ARGUMENTS"), torch_launch.assumed(plan))


def unsupported_islands(plan: IslandsPlan) -> Iterator[str]:
    """What the torch backend cannot execute, and hosts whose ranks torchrun would number in another way."""
    faults = [fault for island in plan.islands for fault in supported.unsupported(island)]
    for fault in dict.fromkeys((*faults, *exchanges.unsupported(plan))):
        what, _, able = fault.partition(" (")
        yield f"{what}: the torch backend cannot execute it; {able.rstrip(')') or 'another plan'}"
    for index, island in enumerate(plan.islands):
        every = hosts.of_plan(island)
        if not hosts.in_order(every) or not all(host.is_whole for host in every):
            yield f"islands[{index}].placement: torchrun fills hosts in order; ranks in the order of hosts and devices"


def islands_launch(plan: IslandsPlan) -> Launch:
    """Environment and script of every host of all islands, which run the plan by the torch backend."""
    return torchrun_islands.launch(plan)
