"""A request for a small mixture of experts on two devices, one of which has little memory."""

from __future__ import annotations

from dataclasses import replace

from planner.request import Request, Wishes
from sim.hardware.cluster import Trunk
from sim.hardware.memory_facts import WORKSPACE
from tests import builders as make
from tests.planner import outside_torch
from tests.planner.builders import request

PINNED = Wishes(schedule="1f1b", zero_stage=1, tp=1, microbatch_size=2)


def question(wishes: Wishes = PINNED, rooms: tuple[float, float] = (60e6, 1e9), batch: int = 16) -> Request:
    """A device on `a`, with memory for one of six layers without recomputation, and one on `b`, equally fast."""
    clusters = []
    for name, room in zip("ab", rooms, strict=True):
        spec = make.device(f"chip-{name}", 2e11, 1e11, memory=room + WORKSPACE + outside_torch.CONTEXT, host_bandwidth=1e10)
        nics = (make.nic("ethernet", 5e9, latency=1e-6),)
        clusters.append(make.cluster(name, 1, 1, nics=nics, intra_node=make.wire(bandwidth=1e10), spec=spec))
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 2e10, 1e-6),))
    model = replace(make.model(6, 96), experts=4, experts_per_token=2, mlp="swiglu")
    return request(machines, model, batch, wishes, seq_len=512)
