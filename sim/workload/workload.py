"""The workload of one optimizer step: model, batch size, sequence length, precision and model FLOPs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sim.units import Flops
from sim.workload.adapter import Adapter
from sim.workload.adapter_kernels import with_adapters
from sim.workload.kernels import Gemm, Kernel, LayerSharding, layer_kernels
from sim.workload.model import PRECISION_BYTES, Model
from sim.workload.optimizers import OPTIMIZERS
from sim.workload.routing import BALANCED, Routing


@dataclass(frozen=True, slots=True)
class Workload:
    """One optimizer step: `global_batch_size` sequences of `seq_len` tokens through the model.

    held: kinds of layers of one stage, where those of the model differ: (number, model of such layers alone). optimizer: a name
    of `sim.workload.optimizers`. adapter: what is trained in place of the model's weights, which are frozen then (LoRA).
    routing: how tokens are divided among experts; a plan may have another one, by the placement of its experts."""

    model: Model
    global_batch_size: int
    seq_len: int
    precision: str = "bf16"
    held: tuple[tuple[int, Model], ...] = ()
    optimizer: str = "adam"
    adapter: Adapter | None = None
    routing: Routing = BALANCED

    def __post_init__(self) -> None:
        for key in ("global_batch_size", "seq_len"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, not {getattr(self, key)}")
        if self.precision not in PRECISION_BYTES:
            raise ValueError(f"precision {self.precision!r} is unknown; known: {', '.join(PRECISION_BYTES)}")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer {self.optimizer!r} is unknown; known: {', '.join(OPTIMIZERS)}")
        if self.adapter is not None:
            self.adapter.check(self.model, self.precision)

    def __hash__(self) -> int:
        """Hash of a few fields only, for speed: many results are cached by workload, and by its kinds and numbers of layers."""
        model, held = self.model, tuple(number for number, _ in self.held) if self.held else ()
        return hash((model.name, model.layers, model.experts, model.sliding_window, held, self.global_batch_size, self.seq_len))

    @property
    def tokens(self) -> int:
        """Tokens of one optimizer step."""
        return self.global_batch_size * self.seq_len

    @property
    def bytes_per_value(self) -> int:
        """Bytes of one activation or weight."""
        return PRECISION_BYTES[self.precision]

    def of_layers(self, first: int, past: int, last: bool) -> Workload:
        """The workload of a stage with the layers from `first` up to, not including, `past`, `last` with the head, where
        layers differ. Layers that predict further tokens are on the last stage, and like the last layer."""
        return self if self.model.is_uniform or self.held else _of_layers(self, first, past, last)

    def of_stage(self, layers: int, first: bool, last: bool) -> Workload:
        """The workload of a stage of so many layers, where it is not known which they are: all dense layers of a model are on
        the stage with the embedding, and other kinds are those of the last layers."""
        if self.model.is_uniform or self.held:
            return self
        end = layers if first else self.model.layers
        return self.of_layers(end - layers, end, last)

    def alike(self, layers: int) -> tuple[tuple[int, Workload], ...]:
        """(number, workload) of the layers of a stage that are alike: of each kind in `held`, else of all `layers`."""
        return _alike(self) if self.held else ((layers, self),)

    @property
    def usual(self) -> Workload:
        """The workload of the kind of layer that the model has most of."""
        every = self.of_layers(0, self.model.layers, False).alike(self.model.layers)
        return max(every, key=lambda pair: pair[0])[1]

    def kernels(self, microbatch_size: int, sharding: LayerSharding) -> tuple[Kernel, ...]:
        """Forward kernels of one layer on one rank for one microbatch, adapters included."""
        kernels = layer_kernels(self.model, microbatch_size, self.seq_len, sharding, self.bytes_per_value)
        if self.adapter is None:
            return kernels
        return with_adapters(kernels, self.model, self.adapter, sharding, self.bytes_per_value)

    @property
    def trained_parameters(self) -> float:
        """Parameters that have gradients: all of the model, or those of its adapters."""
        if self.adapter is None:
            return self.model.parameters
        return self.model.layers * self.adapter.layer_parameters(self.model)

    @property
    def flops(self) -> Flops:
        """Model FLOPs of one optimizer step, forward and backward, without recomputation.

        Three times the forward FLOPs of every matrix product, two times those of a frozen one. The attention core counts the
        masked half too, as MFU is usually reported (Narayanan et al., arXiv 2104.04473, section 3: 72 B s L h^2 (1 + s/6h +
        V/12Lh)).
        """
        model = self.model
        kinds = self.of_layers(0, model.layers, True).alike(model.layers)
        attention = sum(number * _attention_flops(one.model, self.seq_len) for number, one in kinds)
        logits = 2.0 * self.seq_len * model.hidden * model.vocab * (1 + model.mtp_layers) * (2 / 3 if self.adapter else 1)
        further = 4.0 * self.seq_len * model.hidden**2 * model.mtp_layers
        return self.product_flops + 3.0 * self.global_batch_size * (attention + logits + further)

    @property
    def product_flops(self) -> Flops:
        """`flops` of the matrix products of all layers, without the attention core and the head."""
        products = 0.0
        for number, one in self.of_layers(0, self.model.layers, True).alike(self.model.layers):
            kernels = one.kernels(1, LayerSharding())
            products += number * sum(k.flops * k.directions for k in kernels if isinstance(k, Gemm))
        return self.global_batch_size * products


def _attention_flops(model: Model, seq_len: int) -> Flops:
    """FLOPs of scores and weighted values of one layer and sequence, the masked half included; of a window, what it sees."""
    seen = min(seq_len, model.sliding_window or seq_len)
    return 2.0 * seq_len * seen * (model.query_size + model.value_size)


@functools.lru_cache(maxsize=1024)
def _of_layers(workload: Workload, first: int, past: int, last: bool) -> Workload:
    return replace(workload, held=tuple(_held(workload.model, first, past, last)))


def _held(model: Model, first: int, past: int, last: bool) -> Iterator[tuple[int, Model]]:
    found = dict[Model, int]()
    further = model.kinds(model.layers - 1, model.layers) * model.mtp_layers if last else ()
    for number, kind in (*model.kinds(first, past), *further):
        found[kind] = found.get(kind, 0) + number
    yield from ((number, kind) for kind, number in found.items())


@functools.lru_cache(maxsize=4096)
def _alike(workload: Workload) -> tuple[tuple[int, Workload], ...]:
    return tuple((number, replace(workload, model=kind, held=())) for number, kind in workload.held)
