"""Seconds of a model's parts on the device at hand, by microbatch size and tensor-parallel degree.

What is timed is what `holmes-sim run` trains with: its blocks, its gradient buffers, its Adam. A few layers between embedding
and head run forward and backward as one stage does, each block between two marks, into gradient buffers that have been written
before, as in all but the first microbatch of a step. Then Adam steps over as many values as the rank's part of the whole model
has. A rank of tp is cut to its part and meets nobody: the profile says that collectives are apart, and the simulator adds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import Tensor

from holmes_sim.profiling.machine import Machine, Stopwatch, repeated
from holmes_sim.profiling.spread import Spread
from holmes_sim.torch_backend import buckets
from holmes_sim.torch_backend.blocks import Block, Embedding, Head, Layer
from holmes_sim.torch_backend.products import Tensors
from sim.errors import HolmesError
from sim.plan.parallel_config import USUAL_GRADIENTS, ParallelConfig
from sim.units import Seconds
from sim.workload.model import Model

LAYERS = 4
"""Layers that stand for all: enough that none finds its weights in the cache where the whole model would not."""
BUDGET: Seconds = 4.0
"""Seconds of measuring for each microbatch size and tp."""
STATE = 24
"""Bytes of a value that is updated, at most: weight, gradient and the new one, master, two moments."""
SHARE = 0.25
"""Of the device's memory, what the optimizer's values may take; of larger models only so many are updated."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One rank's part of a model with one microbatch: forward and backward of a layer, embedding and head, and the optimizer's
    step over `updated` values of this rank."""

    model: Model
    seq_len: int
    tp: int
    microbatch_size: int
    layer: tuple[Spread, Spread]
    embedding: tuple[Spread, Spread]
    head: tuple[Spread, Spread]
    update: Spread
    updated: int


class Apart(Tensors):
    """A tensor-parallel rank that meets no other: what the others would send has the right shape and stands ready."""

    __slots__ = ("_ready",)

    def __init__(self, ranks: int):
        super().__init__(ranks=ranks, sequence=ranks > 1, told=lambda name, nbytes, do: None)
        self._ready: dict[tuple[int, ...], Tensor] = {}

    def all_reduce(self, value: Tensor) -> Tensor:
        """The value as it is."""
        return value

    def all_gather(self, part: Tensor) -> Tensor:
        """The first part of this shape, once for every rank."""
        shape = tuple(part.shape)
        if shape not in self._ready:
            self._ready[shape] = torch.cat([part.detach()] * self.ranks)
        return self._ready[shape].view_as(self._ready[shape])

    def reduce_scatter(self, whole: Tensor) -> Tensor:
        """This rank's part as it is."""
        return self.cut(whole, 0).view(whole.shape[0] // self.ranks, *whole.shape[1:])


class Stage:
    """A few layers of a model with both ends, on one rank of `tp`."""

    def __init__(self, model: Model, seq_len: int, tp: int, size: int, precision: str, machine: Machine):
        self.tensors, self.machine = Apart(tp), machine
        count = min(model.layers, LAYERS)
        layers = [Layer(model, self.tensors, 0, index, "none") for index in range(count)]
        self.blocks: list[Block] = [Embedding(model, self.tensors, 0), *layers, Head(model, self.tensors, 0, seq_len * size)]
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
            held = [(weight, False, False) for weight in (*weights.values(), rest)]
            self.bucket = buckets.bucket(held, config, precision, 0)
            self.optimizer = buckets.Optimizer(self.bucket.segments)
        self.updated = here + rest.numel()
        self.tokens = torch.randint(model.vocab, (seq_len + 1, size), device=machine.torch_device)
        self.watch = Stopwatch(machine)

    def round(self) -> list[Seconds]:
        """Laps of a microbatch, forward of each block and backward of each in reverse, and of the optimizer's step."""
        for segment in self.bucket.segments:
            segment.grad.zero_()
        self._microbatch()
        for segment in self.bucket.segments:
            segment.settle()
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
    """Raise HolmesError where the blocks cannot be cut so, or are not those of the model."""
    if model.experts:
        raise HolmesError(f"model {model.name} has experts; the torch backend has dense models only")
    for what, number in (
        ("heads", model.heads), ("kv_heads", model.kv_heads), ("ffn_hidden", model.ffn_hidden), ("vocab", model.vocab),
        ("the sequence length", seq_len),
    ):  # fmt: skip
        if number % tp:
            raise HolmesError(f"tp {tp} does not divide {what} of {model.name}, {number}")


def measure(
    model: Model, seq_len: int, tp: int, sizes: Sequence[int], precision: str, machine: Machine, budget: Seconds = BUDGET
) -> Iterator[Measured]:
    """Time a few layers with both ends, and the optimizer; a layer's seconds are those of its mean. Raises HolmesError."""
    check(model, seq_len, tp)
    for size in sizes:
        stage = Stage(model, seq_len, tp, size, precision, machine)
        laps = repeated(stage.round, budget)
        blocks = len(stage.blocks)
        forward, backward = laps[:blocks], laps[blocks : 2 * blocks][::-1]
        layer = _together(forward[1:-1]), _together(backward[1:-1])
        ends = (forward[0], backward[0]), (forward[-1], backward[-1])
        yield Measured(model, seq_len, tp, size, layer, *ends, laps[-1], stage.updated)


def _together(layers: list[Spread]) -> Spread:
    """The mean over layers of each round."""
    return Spread.of(mean(round_) for round_ in zip(*(layer.seconds for layer in layers), strict=True))
