"""torchrun: any torch script, with each process at its rank in the plan."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import environment, torch_launch
from holmes_sim.launching.folder import Launch
from sim.plan.plan import Plan

TITLE = "torchrun"
READERS = "torch 2.13"


def unsupported(plan: Plan) -> Iterator[str]:
    """What NCCL's environment cannot express; the shim assigns ranks for any placement."""
    return environment.unsupported(plan)


def launch(plan: Plan) -> Launch:
    """Environment and script of every host, rank table and shim. The user provides the training script."""
    return Launch(torch_launch.files(plan), torch_launch.HOW.format(words="train.py ARGUMENTS"), torch_launch.assumed(plan))
