"""Gradient buckets: weights in flat buffers whose gradients are accumulated, reduced over the ranks that hold the same weights
and applied by Adam.

A bucket holds the weights of some layers of a stage; `sim.kernels.payloads.buckets` gives the number of buckets. Dense weights
are shared by data-parallel ranks, routed experts by the ranks of an edp group where expert parallelism divides them. With ZeRO
stage 1 and above a rank keeps the optimizer state of its shard only (Rajbhandari et al., arXiv 1910.02054, section 5):
gradients are reduce-scattered, weights all-gathered. The full weights stay in memory even under ZeRO stage 3: its communication
is executed, but it saves no memory here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from holmes_sim.torch_backend.communication import all_gather, all_reduce, reduce_scatter
from holmes_sim.torch_backend.devices import HOST
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
    with adapters, because each rank has a part of them (`adapters`).
    """

    group: str
    shards: int
    shard: int
    tied: bool = False
    replicated: bool = False


class Segment:
    """Weights that are contiguous in one flat buffer and are reduced together."""

    def __init__(self, weights: list[nn.Parameter], config: ParallelConfig, precision: str, sharing: Sharing):
        self.sharing, self.shard = sharing, sharing.shard
        self.shards = sharing.shards if config.zero_stage >= 1 else 1
        sizes = [weight.numel() for weight in weights]
        self.size = sum(sizes)
        self.padded = -(-self.size // self.shards) * self.shards
        self.device = weights[0].device
        self.flat = torch.zeros(self.padded, dtype=PRECISIONS[precision], device=self.device)
        self.summed_as = PRECISIONS[config.gradient_precision]
        self.grad = torch.zeros(self.padded, dtype=self.summed_as, device=self.device)
        self.reduced: Tensor | None = None
        self._local = False  # whether `reduced` is made of `grad` itself
        self._reducing: list[tuple[Tensor, Tensor]] = []
        start = 0
        for weight, size in zip(weights, sizes, strict=True):
            view = self.flat[start : start + size].view(weight.shape)
            view.copy_(weight.data)
            weight.data = view
            self._add_hook(weight, start, size)
            start += size
        where = HOST if config.offloads_optimizer else self.device
        self.master = nn.Parameter(self.own.to(where, torch.float32, copy=True), requires_grad=False)

    def _add_hook(self, weight: nn.Parameter, start: int, size: int) -> None:
        def collect(grad: Tensor) -> None:
            self.grad[start : start + size].add_(grad.reshape(-1))

        def accumulated(leaf: Tensor) -> None:
            if leaf.grad is not None:  # None where the weight gradient is deferred
                collect(leaf.grad)
                leaf.grad = None

        weight.collect = collect  # type: ignore[attr-defined]
        weight.register_post_accumulate_grad_hook(accumulated)

    @property
    def own(self) -> Tensor:
        """This rank's shard of the weights; all weights where the optimizer state is not sharded."""
        return self.flat.chunk(self.shards)[self.shard if self.shards > 1 else 0]

    def reduction(self, group: dist.ProcessGroup, copies: dist.ProcessGroup | None) -> Callable[[], None]:
        """A function that reduces the gradients accumulated so far. New gradients accumulate in a fresh buffer from now on.

        copies: the ranks of other blocks that own the same shard, if there are several (`zero_shard_size`)."""
        whole, self.grad = self.grad, torch.zeros_like(self.grad)
        part = whole if self.shards == 1 else whole.new_empty(self.padded // self.shards)
        self._reducing.append((whole, part))

        def reduce() -> None:
            if self.shards == 1:
                all_reduce(part, group)
            else:
                reduce_scatter(part, whole, group)
            if copies is not None:
                all_reduce(part, copies)

        return reduce

    def accumulate(self) -> None:
        """Add all reduced gradients to `reduced`. Without a data-parallel group these are the local gradients themselves."""
        parts = [part for _, part in self._reducing]
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

    def gathering(self, group: dist.ProcessGroup) -> Callable[[], None]:
        """A function that all-gathers the weights of all shards."""
        own = self.own.clone()
        return lambda: all_gather(self.flat, own, group)

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
        whole = part.new_zeros(self.padded)
        own = whole.chunk(self.shards)[self.shard if self.shards > 1 else 0]
        own.copy_(part)
        for half, group in zip(whole[: self.size].chunk(len(groups)), groups, strict=True):
            all_reduce(half, group)
        return own


class FrozenWeights:
    """Weights beside adapters that are never trained, in one flat buffer that ZeRO stage 3 gathers from shards."""

    def __init__(self, weights: list[nn.Parameter], shards: int, shard: int):
        size = sum(weight.numel() for weight in weights)
        first = weights[0].data
        self.flat = first.new_zeros(-(-size // shards) * shards)
        self.own = self.flat.chunk(shards)[shard]
        start = 0
        for weight in weights:
            view = self.flat[start : start + weight.numel()].view(weight.shape)
            view.copy_(weight.data)
            weight.data = view
            start += weight.numel()

    def gathering(self, group: dist.ProcessGroup) -> Callable[[], None]:
        """A function that all-gathers the weights of all shards."""
        own = self.own.clone()
        return lambda: all_gather(self.flat, own, group)


class Bucket:
    """The weights of some blocks of a stage, as segments. `frozen`: weights without gradients that replicas shard."""

    def __init__(self, segments: list[Segment], frozen: FrozenWeights | None = None):
        self.segments, self.frozen = segments, frozen

    def of_group(self, kind: str) -> Iterator[Segment]:
        """The segments whose gradients are reduced over the rank's group of a kind, dp or edp."""
        return (segment for segment in self.segments if segment.sharing.group == kind)

    def reduction(self, kind: str, group: dist.ProcessGroup, copies: dist.ProcessGroup | None) -> Callable[[], None]:
        """A function that reduces the gradients of all segments of a kind of group."""
        return _all([segment.reduction(group, copies) for segment in self.of_group(kind)])

    def gathering(self, kind: str, group: dist.ProcessGroup) -> Callable[[], None]:
        """A function that all-gathers the weights of all segments of a kind of group, and frozen ones."""
        frozen = [self.frozen.gathering(group)] if self.frozen is not None and kind == "dp" else []
        return _all([*frozen, *(segment.gathering(group) for segment in self.of_group(kind))])


def _all(parts: list[Callable[[], None]]) -> Callable[[], None]:
    def work() -> None:
        for part in parts:
            part()

    return work


def bucket(weights: Iterable[tuple[nn.Parameter, Sharing]], config: ParallelConfig, precision: str) -> Bucket:
    """The bucket of the given weights; frozen ones are in it where parameters are sharded."""
    kinds: dict[Sharing, list[nn.Parameter]] = {}
    frozen: list[tuple[nn.Parameter, Sharing]] = []
    for weight, sharing in weights:
        if weight.requires_grad:
            kinds.setdefault(sharing, []).append(weight)
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
            segment.own.copy_(self.adam.state[segment.master]["exp_avg"])

    def step(self) -> None:
        """One update with the reduced gradients, which are then cleared."""
        for segment in self.segments:
            assert segment.reduced is not None
            segment.master.grad = segment.reduced.to(segment.master.device, torch.float32)
        self.adam.step()
        for segment in self.segments:
            segment.own.copy_(segment.master.data)
            segment.clear()


def segments_of(buckets: Iterable[Bucket], tied: bool = False, replicated: bool = False) -> Iterator[Segment]:
    """Segments that are tied, replicated, or either, as selected."""
    for held in buckets:
        for segment in held.segments:
            if (tied and segment.sharing.tied) or (replicated and segment.sharing.replicated):
                yield segment
