"""torchrun: any torch script, with each process at its rank in the plan."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import environment, torch_launch
from holmes_sim.launching.folder import Launch
from planner.target import Vendors
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TITLE = "torchrun"
READERS = "torch 2.13"
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
