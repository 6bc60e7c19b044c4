"""Weights in flat buffers, bucket by bucket: gradients gathered up, reduced over data-parallel ranks, stepped by Adam.

A bucket holds the weights of some layers of a stage (as many buckets as `sim.kernels.payloads.buckets` says). With ZeRO 1 and
above a rank keeps the optimizer state of its shard alone (Rajbhandari et al., arXiv 1910.02054, section 5): gradients are
reduce_scattered, weights all_gathered. Whole weights stay in memory also under ZeRO 3, which is played but saves none here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

from holmes_sim.torch_backend.exchanges import all_gather, all_reduce, reduce_scatter
from sim.plan.parallel_config import ParallelConfig

LEARNING_RATE = 1e-4
BETAS = (0.9, 0.95)
"""Adam as GPT-3 was trained (Brown et al., arXiv 2005.14165, appendix B); the rate is a usual one of mid-sized models."""
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Segment:
    """Weights that lie side by side and are reduced together.

    `tied` is a word embedding that the two end stages share; `alike` are weights that tensor-parallel ranks hold whole, whose
    gradients they sum where each saw a slice of the sequence.
    """

    def __init__(
        self, weights: list[nn.Parameter], config: ParallelConfig, precision: str, shard: int, tied: bool, alike: bool
    ):
        self.tied, self.alike, self.shard = tied, alike, shard
        self.shards = config.dp_cp if config.zero_stage >= 1 else 1
        sizes = [weight.numel() for weight in weights]
        self.padded = -(-sum(sizes) // self.shards) * self.shards
        self.device = weights[0].device
        self.flat = torch.zeros(self.padded, dtype=PRECISIONS[precision], device=self.device)
        self.summed_as = PRECISIONS[config.gradient_precision]
        self.grad = torch.zeros(self.padded, dtype=self.summed_as, device=self.device)
        self.reduced: Tensor | None = None
        self._under_way: list[tuple[Tensor, Tensor]] = []
        place = 0
        for weight, size in zip(weights, sizes, strict=True):
            view = self.flat[place : place + size].view(weight.shape)
            view.copy_(weight.data)
            weight.data = view
            self._watch(weight, place, size)
            place += size
        self.master = nn.Parameter(self.own.float().clone(), requires_grad=False)

    def _watch(self, weight: nn.Parameter, place: int, size: int) -> None:
        def collect(grad: Tensor) -> None:
            self.grad[place : place + size].add_(grad.reshape(-1))

        def accumulated(leaf: Tensor) -> None:
            if leaf.grad is not None:  # of a product that was put off there is none
                collect(leaf.grad)
                leaf.grad = None

        weight.collect = collect  # type: ignore[attr-defined]
        weight.register_post_accumulate_grad_hook(accumulated)

    @property
    def own(self) -> Tensor:
        """This rank's shard of the weights; all of them where nothing is shared."""
        return self.flat.chunk(self.shards)[self.shard if self.shards > 1 else 0]

    def reduction(self, group: dist.ProcessGroup) -> Callable[[], None]:
        """What reduces the gradients gathered so far; new ones gather from nothing at once."""
        whole, self.grad = self.grad, torch.zeros_like(self.grad)
        part = whole if self.shards == 1 else whole.new_empty(self.padded // self.shards)
        self._under_way.append((whole, part))

        def reduce() -> None:
            if self.shards == 1:
                all_reduce(part, group)
            else:
                reduce_scatter(part, whole, group)

        return reduce

    def settle(self) -> None:
        """Add up what was reduced; where there is nobody to reduce with, what was gathered."""
        parts = [part for _, part in self._under_way]
        self._under_way.clear()
        if not parts and self.reduced is None:
            parts, self.grad = [self.grad], torch.zeros_like(self.grad)
        for part in parts:
            self.reduced = part if self.reduced is None else self.reduced.add_(part)

    def gathering(self, group: dist.ProcessGroup) -> Callable[[], None]:
        """What gathers the weights of all shards."""
        own = self.own.clone()
        return lambda: all_gather(self.flat, own, group)

    def share(self, group: dist.ProcessGroup) -> None:
        """Sum the reduced gradients with those of others who hold the same weights; a shard travels in the whole buffer."""
        assert self.reduced is not None
        whole = torch.zeros(self.padded, dtype=self.summed_as, device=self.device)
        own = whole.chunk(self.shards)[self.shard if self.shards > 1 else 0]
        own.copy_(self.reduced)
        all_reduce(whole, group)
        self.reduced = own


class Bucket:
    """The weights of some blocks of a stage, in segments."""

    def __init__(self, segments: list[Segment]):
        self.segments = segments

    def reduction(self, group: dist.ProcessGroup) -> Callable[[], None]:
        """What reduces all segments."""
        return _all([segment.reduction(group) for segment in self.segments])

    def gathering(self, group: dist.ProcessGroup) -> Callable[[], None]:
        """What gathers all segments."""
        return _all([segment.gathering(group) for segment in self.segments])


def _all(parts: list[Callable[[], None]]) -> Callable[[], None]:
    def work() -> None:
        for part in parts:
            part()

    return work


def bucket(weights: Iterable[tuple[nn.Parameter, bool, bool]], config: ParallelConfig, precision: str, shard: int) -> Bucket:
    """A bucket of (weight, tied, alike) of its blocks."""
    kinds: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for weight, tied, alike in weights:
        kinds.setdefault((tied, alike), []).append(weight)
    return Bucket([Segment(held, config, precision, shard, *kind) for kind, held in sorted(kinds.items())])


class Optimizer:
    """Adam on this rank's shards, in fp32; the new weights go back into the flat buffers."""

    def __init__(self, segments: Iterable[Segment]):
        self.segments = list(segments)
        masters = [segment.master for segment in self.segments]
        self.adam = torch.optim.Adam(masters, lr=LEARNING_RATE, betas=BETAS)

    def step(self) -> None:
        """One step with the reduced gradients, which are gone then."""
        for segment in self.segments:
            assert segment.reduced is not None
            segment.master.grad = segment.reduced.float()
        self.adam.step()
        for segment in self.segments:
            segment.own.copy_(segment.master.data)
            segment.reduced = segment.master.grad = None


def of_kind(buckets: Iterable[Bucket], tied: bool = False, alike: bool = False) -> Iterator[Segment]:
    """Segments of a kind."""
    for held in buckets:
        yield from (segment for segment in held.segments if (tied and segment.tied) or (alike and segment.alike))
