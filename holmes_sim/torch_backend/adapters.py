"""Layers whose weights are frozen, with adapters that are trained (LoRA, `sim.workload.adapter`).

Tensor-parallel ranks divide the matrix at the divided side of the base: B of a column-parallel layer, A of a row-parallel one,
whose partial results are summed with those of the base (`Adapter.layer_parameters`). Each rank has all of the other matrix and
a part of its gradient, which the ranks sum before the optimizer step, whether sequences are divided or not.

Both matrices of an adapter have random initial values, so that tests can distinguish any two weights; usual training starts
with B = 0."""

from __future__ import annotations

from torch import Tensor, cat, nn

from holmes_sim.torch_backend.blocks import Layer
from holmes_sim.torch_backend.nf4 import Narrow, frozen_linear, narrowed
from holmes_sim.torch_backend.tensor_parallel import TensorParallel, linear
from sim.workload.adapter import ROW_PARALLEL, Adapter
from sim.workload.model import Model

SCALE = 2.0
"""What an adapter gives is multiplied by alpha / r (arXiv 2106.09685, section 4.1), with alpha twice r, as exports have it."""


def freeze(module: nn.Module) -> None:
    """Leave all weights of a module as they are."""
    for weight in module.parameters():
        weight.requires_grad_(False)


class AdaptedLayer(Layer):
    """A layer with frozen weights and adapters: for each linear layer NAME with one, the weights NAME_a and NAME_b."""

    def __init__(self, model: Model, parallel: TensorParallel, seed: int, index: int, recompute: str, adapter: Adapter):
        super().__init__(model, parallel, seed, index, recompute)
        freeze(self)
        gated = model.mlp == "swiglu"
        self.widths = {
            "qkv": {"q_proj": model.query_size, "k_proj": model.kv_size, "v_proj": model.kv_size},
            "projection": {"o_proj": model.hidden},
            "up": dict.fromkeys(("gate_proj", "up_proj") if gated else ("up_proj",), model.ffn_hidden),
            "down": {"down_proj": model.hidden},
        }
        """Product -> the linear layers that it joins, in order, with their outputs on all ranks."""
        self.narrow: dict[str, Narrow] = {}
        """Products whose weights are stored in 4 bits."""
        for name in self.widths if adapter.base_precision else ():
            self.narrow[name] = narrowed(getattr(self, name))
            delattr(self, name)
        for name, product, inputs, outputs in adapter.modules(model):
            row = product in ROW_PARALLEL
            self.add_weight(f"{name}_a", ((adapter.r, inputs),), 1 if row else None)
            self.add_weight(f"{name}_b", ((outputs, adapter.r),), None if row else 0)

    def product(self, x: Tensor, name: str, bias: Tensor | None = None) -> Tensor:
        """The product `name` of the layer, with its adapters."""
        widths, ranks = self.widths[name], 1 if name in ROW_PARALLEL else self.parallel.ranks
        narrow = self.narrow.get(name)
        base = super().product(x, name, bias) if narrow is None else frozen_linear(x, narrow, bias)
        parts = base.split([width // ranks for width in widths.values()], -1)
        return cat([self._adapted(x, part, own) for part, own in zip(parts, widths, strict=True)], -1)

    def _adapted(self, x: Tensor, part: Tensor, name: str) -> Tensor:
        if not hasattr(self, f"{name}_a"):
            return part
        low = linear(x, getattr(self, f"{name}_a"), None, self.parallel)
        return part + SCALE * linear(low, getattr(self, f"{name}_b"), None, self.parallel)
