"""A rank that emulates compute: it sleeps for the seconds of the device model instead of computing.

With it a machine can run more ranks than it has cores without distorting the times of compute. Messages and collectives carry
as many bytes as in the program, over the same groups; their contents are meaningless.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend.communication import all_gather, all_reduce, all_to_all, reduce_scatter
from holmes_sim.torch_backend.devices import HOST
from holmes_sim.torch_backend.groups import of_kind
from holmes_sim.torch_backend.rank_in_plan import RankInPlan
from sim.engine.durations import Durations
from sim.plan.groups import GRADIENT_KINDS
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.program import Action


class EmulatedWorker:
    """Worker that sleeps for `scale` times the seconds of the device model."""

    def __init__(self, plan: Plan | PipelinesPlan, rank: int, groups: dict[str, dist.ProcessGroup], scale: float = 1.0):
        self.place, self.groups, self.scale = RankInPlan.of(plan, rank), groups, scale
        self.plan, self.rank = self.place.plan, self.place.rank
        self.durations = Durations(self.plan)
        self.device = HOST
        self.loss: Tensor | float = 0.0
        self.before_update: Callable[[], None] = lambda: None  # called before the optimizer
        self._buffers: dict[tuple[str, int], Tensor] = {}

    def compute(self, action: Action) -> None:
        """Sleep for the duration of the action on the plan's device."""
        if action.kind == "optimizer":
            self.before_update()
        time.sleep(self.durations.of(self.rank, action) * self.scale)

    def includes(self, action: Action) -> bool:
        """Whether the duration of compute already includes this collective of tp, etp or ep ranks."""
        return self.durations.include(self.rank, action)

    def _buffer(self, name: str, nbytes: float) -> Tensor:
        """A reusable buffer of zeros: repeated sums of zeros do not overflow."""
        size = max(int(nbytes), 1)
        if (name, size) not in self._buffers:
            self._buffers[name, size] = torch.zeros(size, dtype=torch.uint8)
        return self._buffers[name, size]

    def send_values(self, action: Action, peers: int) -> list[Tensor]:
        """The tensor to send to each peer."""
        return [self._buffer("send", action.nbytes)] * peers

    def receive_buffer(self, action: Action) -> Tensor:
        """The tensor to receive into, one for all messages of a size."""
        return self._buffer("receive", action.nbytes)

    def receive(self, action: Action, values: list[Tensor]) -> None:
        """Accept the received messages; their contents are not used."""

    def collectives(self, action: Action) -> list[Callable[[], None]]:
        """Functions that execute a collective with the bytes of the action, as many times as the action says: one for each
        slice of the weights that the rank has (`RankInPlan.groups_of`).

        Sums of a tied embedding with several peers (`groups.of_kind`) follow one another."""
        if self.place.sections and action.group in GRADIENT_KINDS:
            names = self.place.groups_of(action.group, action.section)
            return [self._collective(action, name, [self.groups[name]]) for name in names]
        return [self._collective(action, action.group, of_kind(self.groups, action.group))]

    def _collective(self, action: Action, name: str, every: list[dist.ProcessGroup]) -> Callable[[], None]:
        """A function that executes a collective over some groups, one after the other. `name` is that of its buffer."""
        times, ranks = max(round(action.times), 1), every[0].size()
        part = max(int(action.nbytes * action.times / times) // (4 * ranks), 1)
        whole = self._buffer(name, 4.0 * part * ranks).view(torch.float32)
        own = self._buffer(f"{name} part", 4.0 * part).view(torch.float32)
        copies = self.groups.get("copies") if action.group == "dp" else None

        def once(group: dist.ProcessGroup) -> None:
            if action.operation == "all_reduce":
                all_reduce(whole, group)
            elif action.operation == "all_gather":
                all_gather(whole, own, group)
            elif action.operation == "all_to_all":
                all_to_all(whole, whole.clone(), group)
            else:
                reduce_scatter(own, whole, group)
                if copies is not None:
                    all_reduce(own, copies)

        def work() -> None:
            for _ in range(times):
                for group in every:
                    once(group)

        return work
