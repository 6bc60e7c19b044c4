"""Gradient buckets: weights in flat buffers whose gradients are accumulated, reduced over the ranks that hold the same weights
and applied by Adam.

A bucket holds the weights of some layers of a stage; `sim.kernels.payloads.buckets` gives the number of buckets. Dense weights
are shared by data-parallel ranks, routed experts by the ranks of an edp group where expert parallelism divides them. With ZeRO
stage 1 and above a rank keeps the optimizer state of its shard only (Rajbhandari et al., arXiv 1910.02054, section 5):
gradients are reduce-scattered, weights all-gathered. The full weights stay in memory even under ZeRO stage 3: its communication
is executed, but it saves no memory here. In unlike pipelines a rank may sum the gradients of each of several slices of its
weights with other ranks (`holmes_sim.torch_backend.slices`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from holmes_sim.torch_backend.communication import Work, all_gather, all_reduce, reduce_scatter
from holmes_sim.torch_backend.devices import HOST
from holmes_sim.torch_backend.frozen_weights import FrozenWeights
from holmes_sim.torch_backend.slices import Cut, Grid, numel, put, values_of
from sim.plan.parallel_config import ParallelConfig

LEARNING_RATE = 1e-4
BETAS = (0.9, 0.95)
"""Adam's betas of GPT-3 (Brown et al., arXiv 2005.14165, appendix B). The learning rate is typical for mid-sized models."""
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Sharing(NamedTuple):
    """How weights are shared: the kind of group that reduces their gradients (dp, or edp for routed experts), the number of
    ranks over which ZeRO shards their state, and the index of this rank's shard.

    `tied`: the weight is a word embedding shared by the first and the last stage. `replicated`: tensor-parallel ranks all hold
    the weight; with sequence parallelism they sum the gradients, because each rank processes only a slice of the sequence, and
    with adapters, because each rank has a part of them (`adapters`). `grid`: slices of the weights that this rank has, each
    with a group of its own; `partial`: whether the gradients of a weight that each of them has as a whole are summed over
    slices, as over tensor-parallel ranks with sequence parallelism or adapters.
    """

    group: str
    shards: int
    shard: int
    tied: bool = False
    replicated: bool = False
    grid: Grid = Grid()
    partial: bool = False


Held = tuple[nn.Parameter, Cut, Sharing]
"""A weight, how tensor-parallel ranks shard it, and how it is shared."""


class Segment:
    """Weights that are contiguous in one flat buffer and are reduced together.

    The buffer has `padded` values; with several slices it has a row of as many for each slice, and the weights are copies."""

    def __init__(self, weights: Sequence[tuple[nn.Parameter, Cut]], config: ParallelConfig, precision: str, sharing: Sharing):
        self.sharing, self.shard, self.slices = sharing, sharing.shard, sharing.grid.number
        self.shards = sharing.shards if config.zero_stage >= 1 else 1
        sizes = [numel(weight, cut, sharing.grid) for weight, cut in weights]
        self.size = sum(sizes)
        self.padded = -(-self.size // self.shards) * self.shards
        self.device = weights[0][0].device
        shape = (self.slices, self.padded) if self.slices > 1 else (self.padded,)
        self.flat = torch.zeros(shape, dtype=PRECISIONS[precision], device=self.device)
        self.summed_as = PRECISIONS[config.gradient_precision]
        self.grad = torch.zeros(shape, dtype=self.summed_as, device=self.device)
        self.reduced: Tensor | None = None
        self._local = False  # whether `reduced` is made of `grad` itself
        self._reducing: list[tuple[Tensor, Tensor]] = []
        self._copies: list[tuple[nn.Parameter, Cut, int, int]] = []
        start = 0
        for (weight, cut), size in zip(weights, sizes, strict=True):
            self._keep(weight, cut, start, size)
            self._add_hook(weight, cut, start, size)
            start += size
        where = HOST if config.offloads_optimizer else self.device
        self.master = nn.Parameter(self.own.to(where, torch.float32, copy=True), requires_grad=False)

    def _keep(self, weight: nn.Parameter, cut: Cut, start: int, size: int) -> None:
        """Write a weight into the buffer, and make it a view of it where there is one slice."""
        for index, row in enumerate(self._rows(self.flat)):
            row[start : start + size].copy_(values_of(weight.data, cut, self.sharing.grid, index))
        if self.slices == 1:
            weight.data = self.flat[start : start + size].view(weight.shape)
        else:
            weight.data = weight.data.to(self.flat.dtype)
            self._copies.append((weight, cut, start, size))

    def _rows(self, value: Tensor) -> tuple[Tensor, ...]:
        """The values of each slice in the buffer, or in another one of this kind."""
        return value.unbind() if self.slices > 1 else (value,)

    def _add_hook(self, weight: nn.Parameter, cut: Cut, start: int, size: int) -> None:
        def collect(grad: Tensor) -> None:
            for index, row in enumerate(self._rows(self.grad)):
                row[start : start + size].add_(values_of(grad, cut, self.sharing.grid, index))

        def accumulated(leaf: Tensor) -> None:
            if leaf.grad is not None:  # None where the weight gradient is deferred
                collect(leaf.grad)
                leaf.grad = None

        weight.collect = collect  # type: ignore[attr-defined]
        weight.register_post_accumulate_grad_hook(accumulated)

    @property
    def own(self) -> Tensor:
        """This rank's shard of the weights; all weights where the optimizer state is not sharded."""
        return self.flat.chunk(self.shards, -1)[self.shard if self.shards > 1 else 0]

    def reduction(self, groups: Sequence[dist.ProcessGroup], copies: dist.ProcessGroup | None = None) -> list[Work]:
        """Functions that reduce the gradients accumulated so far, of each slice over its group. New gradients accumulate in a
        fresh buffer from now on.

        copies: the ranks of other blocks that own the same shard, if there are several (`zero_shard_size`)."""
        whole, self.grad = self.grad, torch.zeros_like(self.grad)
        if self.sharing.partial:  # the sums over tensor-parallel ranks, of which this one stands for several, follow
            whole /= self.slices
        part = whole if self.shards == 1 else whole.new_empty((*whole.shape[:-1], self.padded // self.shards))
        self._reducing.append((whole, part))

        def reduce(every: Tensor, own: Tensor, group: dist.ProcessGroup) -> None:
            if self.shards == 1:
                all_reduce(own, group)
            else:
                reduce_scatter(own, every, group)
            if copies is not None:
                all_reduce(own, copies)

        rows = zip(self._rows(whole), self._rows(part), groups, strict=True)
        return [functools.partial(reduce, *row) for row in rows]

    def accumulate(self) -> None:
        """Add all reduced gradients to `reduced`. Without a data-parallel group these are the local gradients themselves."""
        parts = [
            part.sum(0, keepdim=True).repeat(self.slices, 1) if self.sharing.partial else part for _, part in self._reducing
        ]
        self._reducing.clear()
        if not parts and self.reduced is None:
            parts, self._local = [self.grad], True
        for part in parts:
            self.reduced = part if self.reduced is None else self.reduced.add_(part)

    def clear(self) -> None:
        """Drop the reduced gradients, and begin the next step with gradients of zero."""
        if self._local:
            self.grad.zero_()
        self._local = False
        self.reduced = self.master.grad = None

    def gathering(self, groups: Sequence[dist.ProcessGroup]) -> list[Work]:
        """Functions that all-gather the weights of all shards, of each slice over its group."""

        def gather(index: int, every: Tensor, own: Tensor, group: dist.ProcessGroup) -> None:
            all_gather(every, own, group)
            self._copy(index)

        rows = zip(self._rows(self.flat), self._rows(self.own.clone()), groups, strict=True)
        return [functools.partial(gather, index, *row) for index, row in enumerate(rows)]

    def put(self, values: Tensor) -> None:
        """Replace this rank's shard of the weights."""
        self.own.copy_(values)
        for index in range(self.slices):
            self._copy(index)

    def _copy(self, index: int) -> None:
        """Copy slice `index` from the buffer to weights that are no views of it."""
        for weight, cut, start, size in self._copies:
            if cut.dim is not None or self.sharing.grid.is_first(index):
                put(weight.data, cut, self.sharing.grid, index, self.flat[index, start : start + size])

    def sum_tied(self, groups: list[dist.ProcessGroup], by_shards: bool) -> None:
        """Sum the reduced gradients with those of the other stage that holds the same weights (`sum_over_tied`)."""
        assert self.reduced is not None
        self.reduced = self.sum_over_tied(self.reduced, groups, by_shards)

    def sum_over_tied(self, part: Tensor, groups: list[dist.ProcessGroup], by_shards: bool) -> Tensor:
        """The sum of values of this rank's shard with those of the other stage that holds the same weights: of the shard, or
        with other frameworks' traffic, of a buffer of full size that has the shard and is zero elsewhere.

        With a larger tp on the other stage, each of several groups has the rank that holds one part of these weights."""
        if by_shards:  # the ranks of both stages with equal replicas own equal shards of the segment
            (group,) = groups
            all_reduce(part, group)
            return part
        whole = part.new_zeros(self.flat.shape)
        own = whole.chunk(self.shards, -1)[self.shard if self.shards > 1 else 0]
        own.copy_(part)
        words = whole[..., : self.size]
        values = words.reshape(-1)  # the slices of a word embedding follow one another
        for half, group in zip(values.chunk(len(groups)), groups, strict=True):
            all_reduce(half, group)
        words.copy_(values.view(words.shape))
        return own


class Bucket:
    """The weights of some blocks of a stage, as segments. `frozen`: weights without gradients that replicas shard."""

    def __init__(self, segments: list[Segment], frozen: FrozenWeights | None = None):
        self.segments, self.frozen = segments, frozen

    def of_group(self, kind: str) -> Iterator[Segment]:
        """The segments whose gradients are reduced over the rank's group of a kind, dp or edp."""
        return (segment for segment in self.segments if segment.sharing.group == kind)

    def reduction(self, kind: str, groups: Sequence[dist.ProcessGroup], copies: dist.ProcessGroup | None) -> list[Work]:
        """Functions that reduce the gradients of all segments of a kind of group, of each slice over its group."""
        return together([segment.reduction(groups, copies) for segment in self.of_group(kind)])

    def gathering(self, kind: str, groups: Sequence[dist.ProcessGroup]) -> list[Work]:
        """Functions that all-gather the weights of all segments of a kind of group, of each slice over its group, and frozen
        ones."""
        frozen = [self.frozen.gathering(groups)] if self.frozen is not None and kind == "dp" else []
        return together([*frozen, *(segment.gathering(groups) for segment in self.of_group(kind))])


def together(works: Sequence[Sequence[Work]]) -> list[Work]:
    """Functions that do the first of each of some works one after the other, the second of each, and so on."""

    def work(parts: tuple[Work, ...]) -> None:
        for part in parts:
            part()

    return [functools.partial(work, parts) for parts in zip(*works, strict=True)]


def bucket(weights: Iterable[Held], config: ParallelConfig, precision: str) -> Bucket:
    """The bucket of the given weights; frozen ones are in it where parameters are sharded."""
    kinds: dict[Sharing, list[tuple[nn.Parameter, Cut]]] = {}
    frozen: list[tuple[nn.Parameter, Sharing]] = []
    for weight, cut, sharing in weights:
        if weight.requires_grad:
            kinds.setdefault(sharing, []).append((weight, cut))
        elif config.shards_parameters:
            frozen.append((weight, sharing))
    segments = [Segment(held, config, precision, sharing) for sharing, held in sorted(kinds.items())]
    kept = FrozenWeights([weight for weight, _ in frozen], frozen[0][1].shards, frozen[0][1].shard) if frozen else None
    return Bucket(segments, kept)


class Optimizer:
    """Adam in fp32 on this rank's shards, on the host where the plan offloads its state. Updated weights are copied back to the
    flat buffers."""

    def __init__(self, segments: Iterable[Segment]):
        self.segments = list(segments)
        masters = [segment.master for segment in self.segments]
        fused = any(segment.flat.is_cuda for segment in self.segments)  # less memory there, several times faster on its host
        self.adam = torch.optim.Adam(masters, lr=LEARNING_RATE, betas=BETAS, fused=fused)

    def put_moments(self) -> None:
        """Replace this rank's shards of the weights by Adam's first moments, means of gradients: unlike the weights, they show
        the scale of gradients."""
        for segment in self.segments:
            segment.put(self.adam.state[segment.master]["exp_avg"])

    def step(self) -> None:
        """One update with the reduced gradients, which are then cleared."""
        for segment in self.segments:
            assert segment.reduced is not None
            segment.master.grad = segment.reduced.to(segment.master.device, torch.float32)
        self.adam.step()
        for segment in self.segments:
            segment.put(segment.master.data)
            segment.clear()


def segments_of(buckets: Iterable[Bucket], tied: bool = False, replicated: bool = False) -> Iterator[Segment]:
    """Segments that are tied, replicated, or either, as selected."""
    for held in buckets:
        for segment in held.segments:
            if (tied and segment.sharing.tied) or (replicated and segment.sharing.replicated):
                yield segment
