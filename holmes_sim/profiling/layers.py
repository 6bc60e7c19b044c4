"""Measured seconds of a model's parts on this device, by microbatch size and tensor-parallel degree.

The measured code is what `holmes-sim run` trains with: its blocks, gradient buffers and Adam. A few layers between embedding
and head run forward and backward as one stage, with a time stamp after each block. Gradient buffers have been written before,
as in all microbatches of a step but the first. Then Adam updates as many values as the rank's part of the whole model has. A
tensor-parallel rank is measured alone on its shard, without collectives: the profile states that collectives are apart, and the
simulator adds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import Tensor

from holmes_sim.profiling.machine import Machine, Stopwatch, repeated
from holmes_sim.profiling.timings import Timings
from holmes_sim.torch_backend import buckets
from holmes_sim.torch_backend.blocks import Block, Embedding, Head, Layer
from holmes_sim.torch_backend.slices import WHOLE
from holmes_sim.torch_backend.tensor_parallel import TensorParallel
from sim.errors import HolmesError
from sim.plan.parallel_config import USUAL_GRADIENTS, ParallelConfig
from sim.units import Seconds
from sim.workload.model import Model

LAYERS = 4
"""Number of measured layers, which represent all layers: enough that no weights stay in the cache where the whole model would
evict them."""
BUDGET: Seconds = 4.0
"""Seconds of measurement for each microbatch size and tp."""
STATE = 24
"""Upper bound on bytes per updated value: weight, gradient and its next buffer, fp32 master weight, two Adam moments."""
SHARE = 0.25
"""Maximum share of device memory for the values that Adam updates. For larger models only that many values are updated. A
guess."""


@dataclass(frozen=True, slots=True)
class LayerTimings:
    """Timings of one tensor-parallel rank with one microbatch: (forward, backward) of a layer, of embedding and head, and the
    optimizer's update of `updated` values."""

    model: Model
    seq_len: int
    tp: int
    microbatch_size: int
    layer: tuple[Timings, Timings]
    embedding: tuple[Timings, Timings]
    head: tuple[Timings, Timings]
    update: Timings
    updated: int


class LocalTensorParallel(TensorParallel):
    """A tensor-parallel rank without peers: collectives return tensors of the right shape and do not communicate."""

    __slots__ = ("_gathered",)

    def __init__(self, ranks: int):
        super().__init__(ranks=ranks, sequence=ranks > 1, run_timed=lambda name, nbytes, do: None)
        self._gathered: dict[tuple[int, ...], Tensor] = {}

    def all_reduce(self, value: Tensor) -> Tensor:
        """The value, unchanged."""
        return value

    def all_gather(self, part: Tensor) -> Tensor:
        """The first part of this shape, repeated for every rank and cached."""
        shape = tuple(part.shape)
        if shape not in self._gathered:
            self._gathered[shape] = torch.cat([part.detach()] * self.ranks)
        return self._gathered[shape].view_as(self._gathered[shape])

    def reduce_scatter(self, whole: Tensor) -> Tensor:
        """This rank's part, unchanged."""
        return self.shard(whole, 0).view(whole.shape[0] // self.ranks, *whole.shape[1:])


class Stage:
    """A stage of a few layers with embedding and head, on one of `tp` tensor-parallel ranks."""

    def __init__(self, model: Model, seq_len: int, tp: int, size: int, precision: str, machine: Machine):
        self.parallel, self.machine = LocalTensorParallel(tp), machine
        count = min(model.layers, LAYERS)
        layers = [Layer(model, self.parallel, 0, index, "none") for index in range(count)]
        self.blocks: list[Block] = [Embedding(model, self.parallel, 0), *layers, Head(model, self.parallel, 0, seq_len * size)]
        with torch.device(machine.torch_device):
            for block in self.blocks:
                block.to(machine.torch_device)
            if model.tied_embeddings:
                self.blocks[-1].words = self.blocks[0].words
            weights = {id(weight): weight for block in self.blocks for weight in block.parameters()}
            config = ParallelConfig(gradient_precision=USUAL_GRADIENTS.get(precision, "fp32"))
            here = sum(weight.numel() for weight in weights.values())
            most = int(min(model.parameters / tp, SHARE * machine.memory / STATE))
            rest = torch.nn.Parameter(torch.zeros(max(most - here, 0)))
            held = [(weight, WHOLE, buckets.Sharing("dp", 1, 0)) for weight in (*weights.values(), rest)]
            self.bucket = buckets.bucket(held, config, precision)
            self.optimizer = buckets.Optimizer(self.bucket.segments)
        self.updated = here + rest.numel()
        self.tokens = torch.randint(model.vocab, (seq_len + 1, size), device=machine.torch_device)
        self.watch = Stopwatch(machine)

    def round(self) -> list[Seconds]:
        """Seconds of one microbatch: forward of each block, backward of each block in reverse order, and the optimizer step."""
        for segment in self.bucket.segments:
            segment.grad.zero_()
        self._microbatch()
        for segment in self.bucket.segments:
            segment.accumulate()
        self.optimizer.step()
        self.watch.mark()
        return self.watch.laps()

    def _microbatch(self) -> None:
        kept, mark = [], self.watch.mark
        x: Tensor | None = None
        mark()
        for block in self.blocks:
            leaf = x.detach().requires_grad_() if x is not None else None
            if isinstance(block, Embedding):
                x = block(self.tokens[:-1])
            else:
                x = block(leaf, self.tokens[1:]) if isinstance(block, Head) else block(leaf)
            kept.append((leaf, x))
            mark()
        grad = None
        while kept:
            leaf, out = kept.pop()
            torch.autograd.backward(out, grad)
            grad = leaf.grad if leaf is not None else None
            mark()


def check(model: Model, seq_len: int, tp: int) -> None:
    """Raise HolmesError where the blocks cannot be sharded over `tp`, or do not implement the model."""
    if model.experts:
        raise HolmesError(f"model {model.name} has experts; profile measures layers without experts only")
    for what, number in (
        ("heads", model.heads), ("kv_heads", model.kv_heads), ("ffn_hidden", model.ffn_hidden), ("vocab", model.vocab),
        ("the sequence length", seq_len),
    ):  # fmt: skip
        if number % tp:
            raise HolmesError(f"tp {tp} does not divide {what} of {model.name}, {number}")


def measure(
    model: Model, seq_len: int, tp: int, sizes: Sequence[int], precision: str, machine: Machine, budget: Seconds = BUDGET
) -> Iterator[LayerTimings]:
    """Measure a few layers with embedding and head, and the optimizer, for each microbatch size. Layer seconds are the mean
    over the measured layers. Raises HolmesError."""
    check(model, seq_len, tp)
    for size in sizes:
        stage = Stage(model, seq_len, tp, size, precision, machine)
        laps = repeated(stage.round, budget)
        blocks = len(stage.blocks)
        forward, backward = laps[:blocks], laps[blocks : 2 * blocks][::-1]
        layer = _mean_of_layers(forward[1:-1]), _mean_of_layers(backward[1:-1])
        ends = (forward[0], backward[0]), (forward[-1], backward[-1])
        yield LayerTimings(model, seq_len, tp, size, layer, *ends, laps[-1], stage.updated)


def _mean_of_layers(layers: list[Timings]) -> Timings:
    """The mean over layers, for each round."""
    return Timings.of(mean(round_) for round_ in zip(*(layer.seconds for layer in layers), strict=True))
