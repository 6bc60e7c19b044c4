"""A rank that waits the device model's seconds instead of computing, so that more ranks than cores stay honest.

Messages and collectives carry as many bytes as the program says, over the same groups; what they carry means nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend.devices import HOST
from holmes_sim.torch_backend.exchanges import all_gather, all_reduce, reduce_scatter
from sim.engine.durations import Durations
from sim.plan.plan import Plan
from sim.plan.program import Action


class Paced:
    """What one rank waits for and sends; `scale` times the model's seconds."""

    def __init__(self, plan: Plan, rank: int, groups: dict[str, dist.ProcessGroup], scale: float = 1.0):
        self.plan, self.rank, self.groups, self.scale = plan, rank, groups, scale
        self.durations = Durations(plan)
        self.device = HOST
        self.loss = 0.0
        self._buffers: dict[tuple[str, int], Tensor] = {}

    def compute(self, action: Action) -> None:
        """Wait as long as the action takes on the plan's device."""
        time.sleep(self.durations.of(self.rank, action) * self.scale)

    def include(self, action: Action) -> bool:
        """Whether an exchange of tensor-parallel ranks is within the compute that was waited for."""
        return self.durations.include(self.rank, action)

    def _buffer(self, name: str, nbytes: float) -> Tensor:
        """Bytes that are written over and over: zeros, of which sums do not grow."""
        size = max(int(nbytes), 1)
        if (name, size) not in self._buffers:
            self._buffers[name, size] = torch.zeros(size, dtype=torch.uint8)
        return self._buffers[name, size]

    def outgoing(self, action: Action) -> Tensor:
        """What a send carries."""
        return self._buffer("send", action.nbytes)

    def room(self, action: Action) -> Tensor:
        """Where a receive puts what comes."""
        return torch.empty(max(int(action.nbytes), 1), dtype=torch.uint8)

    def take(self, action: Action, value: Tensor) -> None:
        """A message has come."""

    def exchange(self, action: Action) -> Callable[[], None]:
        """A collective of the action's bytes in its group, as often as it says."""
        group, times = self.groups[action.group], max(round(action.times), 1)
        ranks = group.size()
        part = max(int(action.nbytes * action.times / times) // (4 * ranks), 1)
        whole = self._buffer(action.group, 4.0 * part * ranks).view(torch.float32)

        def once() -> None:
            if action.operation == "all_reduce":
                all_reduce(whole, group)
            elif action.operation == "all_gather":
                all_gather(whole, whole[:part].clone(), group)
            else:
                reduce_scatter(whole[:part].clone(), whole, group)

        def work() -> None:
            for _ in range(times):
                once()

        return work
