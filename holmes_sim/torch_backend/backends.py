"""Which of torch's backends a group is built with, and what each rank computes on; needs no torch.

NCCL where all of a group's ranks have accelerators that torch calls cuda, of one vendor (NVIDIA's NCCL, or AMD's RCCL, which
torch calls NCCL too). Gloo elsewhere: on CPUs, and across vendors, where it is HETHUB's unified communicator in torch's terms
(arXiv 2405.16256, section 3.1). Messages between stages go over gloo everywhere. NCCL's have no tags and hold the device while
they wait, and all of a pair go one after the other: a receive that is asked for ahead would stand before the message that its
sender waits for. The group of all ranks is gloo's as well: it gathers objects, and there is then none of NCCL across fabrics.
"""

from __future__ import annotations

from collections.abc import Sequence

from holmes_sim.launching.nets import one_vendor
from sim.plan.groups import Group
from sim.plan.plan import Plan

GLOO, NCCL = "gloo", "nccl"
CPU, CUDA, ROCM = "cpu", "cuda", "rocm"
"""What a rank computes on. Under ROCm torch has devices `cuda` too."""
WORLD = GLOO
"""Backend of the group of all ranks."""


def backend(plan: Plan, group: Group, on: Sequence[str]) -> str:
    """The backend of a group of a plan, whose rank `r` computes on `on[r]`."""
    kinds = {on[rank] for rank in group.ranks}
    accelerated = len(kinds) == 1 and CPU not in kinds
    return NCCL if accelerated and group.kind != "pp" and one_vendor(plan, group.ranks) else GLOO
