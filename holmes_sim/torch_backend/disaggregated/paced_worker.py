"""A rank of one of two sets that emulates compute: it sleeps for the seconds of the model, and exchanges as many bytes."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import Tensor

from holmes_sim.torch_backend.communication import all_reduce, all_to_all
from holmes_sim.torch_backend.devices import HOST
from holmes_sim.torch_backend.disaggregated.set_rank import SetRank
from holmes_sim.torch_backend.disaggregated.training_worker import Timed
from sim.disaggregation import shares
from sim.disaggregation.costs import TaskCosts
from sim.disaggregation.set_groups import DISPATCH
from sim.disaggregation.tasks import Task
from sim.plan.parallel_config import GRADIENT_BYTES


class SetPacedWorker:
    """Worker that sleeps for `scale` times the seconds of the model; the contents of its messages are meaningless."""

    def __init__(self, place: SetRank, groups: dict[str, dist.ProcessGroup], scale: float = 1.0):
        self.place, self.stage, self.groups, self.scale, self.device = place, place.stage, groups, scale, HOST
        self.loss: Tensor | float = 0.0
        self.costs = TaskCosts(place.stage)

    def compute(self, task: Task) -> None:
        """Sleep for the seconds of a task."""
        time.sleep(self.costs.seconds(task) * self.scale)

    def exchange(self, task: Task) -> None:
        """Send and receive as many bytes as a dispatch or combine has."""
        rows, own = shares.sent_bytes(self.stage, self.stage.kept[task.layer - 1]), self.place.in_group
        there, back = [int(nbytes) for nbytes in rows[own]], [int(row[own]) for row in rows]
        sent, received = (there, back) if task.stream == DISPATCH else (back, there)
        found = torch.empty(sum(received), dtype=torch.uint8)
        all_to_all(found, torch.zeros(sum(sent), dtype=torch.uint8), self.groups[task.stream], received, sent)

    def finish(self, timed: Timed) -> None:
        """Sum as many gradients, and sleep for the seconds of the optimizer."""
        dense, kept, experts = shares.held_parameters(self.stage)
        held = {"edp": experts} if self.place.set_number else {"dp": dense, "edp": kept}
        for kind, parameters in held.items():
            if kind in self.groups and parameters:
                nbytes = parameters * GRADIENT_BYTES[self.stage.config.gradient_precision]
                whole, group = torch.zeros(-(-nbytes // 4)), self.groups[kind]
                timed(kind, "all_reduce", lambda whole=whole, group=group: all_reduce(whole, group))  # type: ignore[misc]
        seconds = self.costs.optimizer_seconds()[self.place.set_name]
        timed("optimizer", "optimizer", lambda: time.sleep(seconds * self.scale))
