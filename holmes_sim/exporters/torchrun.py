"""torchrun: any torch script, each process as the rank that the plan says."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import environment, torch_launch
from holmes_sim.launching.folder import Launch
from sim.plan.plan import Plan

TITLE = "torchrun"
READERS = "torch 2.13"


def against(plan: Plan) -> Iterator[str]:
    """The shim gives every process its rank, whatever the placement; NCCL's devices are what may not be expressible."""
    return environment.against(plan)


def launch(plan: Plan) -> Launch:
    """Environment and script of every host, rank table and shim; the training script is the user's."""
    return Launch(torch_launch.files(plan), torch_launch.HOW.format(words="train.py ARGUMENTS"), torch_launch.assumed(plan))
