"""A rank of one of two sets that trains: its tasks, the tokens that it exchanges, gradients and the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn

from holmes_sim.torch_backend import buckets
from holmes_sim.torch_backend.blocks import Block
from holmes_sim.torch_backend.buckets import Segment, Sharing
from holmes_sim.torch_backend.communication import all_to_all
from holmes_sim.torch_backend.devices import HOST, synchronize
from holmes_sim.torch_backend.disaggregated.attention_part import AttentionPart, Routed
from holmes_sim.torch_backend.disaggregated.held_experts import HeldExperts
from holmes_sim.torch_backend.disaggregated.set_rank import SetRank
from holmes_sim.torch_backend.slices import WHOLE
from holmes_sim.torch_backend.training_worker import sequences
from sim.disaggregation.set_groups import COMBINE, DISPATCH
from sim.disaggregation.tasks import Task

Timed: TypeAlias = Callable[[str, str, Callable[[], None]], None]
"""Runs one thing at the end of a step, so that it can be timed: (kind of group, or "optimizer"; name; function)."""
Message: TypeAlias = tuple[str, bool, int, int]
"""Rows of an exchange: (stream, whether backward, layer, microbatch)."""


class SetTrainingWorker:
    """Worker that computes the tasks of one rank, and exchanges its tokens and their gradients.

    Tasks are computed in one thread, and each stream of exchanges has a thread of its own: `compute` leaves rows for
    `exchange`, and takes rows that have arrived. The executor orders them."""

    def __init__(self, place: SetRank, groups: dict[str, dist.ProcessGroup], seed: int = 0, device: torch.device = HOST):
        self.place, self.stage, self.groups, self.seed, self.device = place, place.stage, groups, seed, device
        self.loss: Tensor | float = 0.0
        self.step = 0
        workload, config = self.stage.workload, self.stage.config
        self.dtype = buckets.PRECISIONS[workload.precision]
        self.attention = None if place.set_number else AttentionPart(self.stage, seed, device)
        self.experts = HeldExperts(place, seed, device)
        parts: list[tuple[list[Block], Sharing]] = [
            (self.attention.blocks if self.attention else [], Sharing("dp", len(self.stage.attention), place.rank)),
            (list(self.experts.layers.values()), Sharing("edp", self.stage.groups, place.group)),
        ]
        self.segments = [
            Segment([(weight, WHOLE) for weight in weights], config, workload.precision, sharing)
            for blocks, sharing in parts
            if (weights := _weights(blocks))
        ]
        self.optimizer = buckets.Optimizer(self.segments)
        self._leaving: dict[Message, Tensor] = {}
        self._arrived: dict[Message, Tensor] = {}
        self._sent: dict[tuple[int, int], list[int]] = {}
        self._counts: dict[tuple[int, int], Tensor] = {}
        self._sizes: dict[tuple[int, int], Tensor] = {}

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (name in the model, weight); those of experts have the experts that this rank holds."""
        blocks: list[Block] = [*(self.attention.blocks if self.attention else []), *self.experts.layers.values()]
        for block in blocks:
            yield from ((name, weight.data) for name, weight in block.named())

    # compute

    def compute(self, task: Task) -> None:
        """Execute a task A, E or X."""
        number = task.round * self.stage.microbatches + task.microbatch
        if task.kind == "A":
            self._attention_backward(task.layer, number) if task.backward else self._attention_forward(task.layer, number)
        else:
            key = DISPATCH, task.backward, task.layer, number
            rows = self._arrived.pop(key)
            if task.backward:
                found = self.experts.backward(task.layer, number, rows)
            else:
                found = self.experts.forward(task.layer, number, rows, self._sizes[task.layer, number])
            self._leaving[COMBINE, task.backward, task.layer, number] = found
        synchronize(self.device)

    def _attention_forward(self, layer: int, number: int) -> None:
        assert self.attention is not None
        results = self._arrived.pop((COMBINE, False, layer, number)) if layer else None
        found = self.attention.forward(layer, number, self._tokens(number), results)
        if isinstance(found, Routed):
            self._leaving[DISPATCH, False, layer + 1, number] = found.rows
            self._counts[layer + 1, number] = found.counts
        else:
            self.loss = self.loss + found

    def _attention_backward(self, layer: int, number: int) -> None:
        assert self.attention is not None
        gradient = self._arrived.pop((COMBINE, True, layer + 1, number), None)
        found = self.attention.backward(layer, number, gradient)
        if found is not None:
            self._leaving[DISPATCH, True, layer, number] = found

    def _tokens(self, number: int) -> Tensor:
        """Tokens of a microbatch of this attention rank."""
        stage, size = self.stage, self.stage.microbatch_size
        first = (self.place.rank * stage.microbatches * stage.rounds + number) * size
        return sequences(stage.workload, self.seed, self.step, range(first, first + size)).to(self.device)

    # exchanges

    def exchange(self, task: Task) -> None:
        """Execute a task D or C: rows to their experts and results back, or gradients of results and of rows."""
        number, stream = task.round * self.stage.microbatches + task.microbatch, task.stream
        group, key = self.groups[stream], (task.layer, number)
        if stream == DISPATCH and not task.backward:
            self._exchange_sizes(task.layer, number, group)
        owned = [*self._sizes[key].sum(1).tolist(), *[0] * self.stage.expert_ranks]
        sent, received = (self._sent[key], owned) if stream == DISPATCH else (owned, self._sent[key])
        shape = 0, self.stage.workload.model.hidden
        rows = self._leaving.pop((stream, task.backward, *key), torch.empty(shape, dtype=self.dtype, device=self.device))
        found = rows.new_empty((sum(received), shape[1]))
        all_to_all(found, rows.contiguous(), group, received, sent)
        takes = task.layer in self.experts.layers if stream == DISPATCH else self.attention is not None
        if takes:
            self._arrived[stream, task.backward, *key] = found
        if stream != DISPATCH and task.backward:
            del self._sizes[key], self._sent[key]

    def _exchange_sizes(self, layer: int, number: int, group: dist.ProcessGroup) -> None:
        """Tell the ranks of the group how many rows each of their experts gets."""
        key, m = (layer, number), self.stage.attention_ranks
        held = [len(experts) for experts in self.place.all_experts(layer)]
        own = held[self.place.in_group]
        counts = self._counts.pop(key).cpu() if self.attention else torch.empty(0, dtype=torch.int64)
        sizes = torch.empty(m * own, dtype=torch.int64)
        received, sent = [own] * m + [0] * self.stage.expert_ranks, held if self.attention else [0] * len(held)
        all_to_all(sizes, counts, group, received, sent)
        self._sizes[key] = sizes.view(m, own)
        self._sent[key] = [int(part.sum()) for part in counts.split(held)] if self.attention else [0] * len(held)

    # the end of a step

    def finish(self, timed: Timed) -> None:
        """Sum gradients over the ranks that hold the same weights, update the weights, and gather them."""
        for segment in self.segments:
            if (kind := segment.sharing.group) in self.groups:
                (reduce,) = segment.reduction([self.groups[kind]])
                timed(kind, "reduce_scatter" if segment.shards > 1 else "all_reduce", reduce)
        timed("optimizer", "optimizer", self._update)
        for segment in self.segments:
            if segment.shards > 1:
                (gather,) = segment.gathering([self.groups[segment.sharing.group]])
                timed(segment.sharing.group, "all_gather", gather)
        self.step += 1

    def _update(self) -> None:
        for segment in self.segments:
            segment.accumulate()
        self.optimizer.step()
        synchronize(self.device)

    def gather(self) -> None:
        """All-gather the weights from the shards of the ranks that hold the same ones."""
        for segment in self.segments:
            if segment.shards > 1:
                (gather,) = segment.gathering([self.groups[segment.sharing.group]])
                gather()


def _weights(blocks: list[Block]) -> list[nn.Parameter]:
    """The weights of blocks, each once: a tied one belongs to the first block that has it."""
    return list({id(weight): weight for block in blocks for weight in block.parameters()}.values())
