"""The torch.distributed backend of each process group. This module does not need torch.

- NCCL joins ranks that all have accelerators of one vendor that torch calls `cuda`: NVIDIA's NCCL, or AMD's RCCL, which torch
  also calls NCCL.
- Gloo joins all others: CPUs, and devices of different vendors, where it corresponds to HETHUB's unified communicator (arXiv
  2405.16256, section 3.1).
- Pipeline messages always use gloo. NCCL's point-to-point messages have no tags, occupy the device while they wait, and are
  executed in order for each pair of ranks: a receive that is posted early would block the message that its sender waits for.
- The group of all ranks uses gloo. It gathers Python objects, and this avoids an NCCL group across fabrics.
"""

from __future__ import annotations

from collections.abc import Sequence

from holmes_sim.launching.nets import one_vendor
from sim.plan.groups import Group
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan

GLOO, NCCL = "gloo", "nccl"
CPU, CUDA, ROCM = "cpu", "cuda", "rocm"
"""Kinds of device that a rank computes on. Under ROCm torch also names its devices `cuda`."""
WORLD = GLOO
"""Backend of the group of all ranks."""


def backend(plan: Plan | PipelinesPlan, group: Group, on: Sequence[str]) -> str:
    """Backend of a group of the plan, where rank `r` computes on a device of kind `on[r]`."""
    kinds = {on[rank] for rank in group.ranks}
    accelerated = len(kinds) == 1 and CPU not in kinds
    return NCCL if accelerated and group.kind != "pp" and one_vendor(plan, group.ranks) else GLOO
