"""Layers whose weights are frozen, with adapters that are trained (LoRA, `sim.workload.adapter`), on one tensor-parallel rank.

Both matrices of an adapter have random initial values, so that tests can distinguish any two weights; usual training starts
with B = 0."""

from __future__ import annotations

from torch import Tensor, cat, nn

from holmes_sim.torch_backend.blocks import Layer
from holmes_sim.torch_backend.tensor_parallel import TensorParallel, linear
from sim.workload.adapter import Adapter
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
        """Product -> the linear layers that it joins, in order, with their outputs."""
        for name, _, inputs, outputs in adapter.modules(model):
            self.add_weight(f"{name}_a", ((adapter.r, inputs),))
            self.add_weight(f"{name}_b", ((outputs, adapter.r),))

    def product(self, x: Tensor, name: str, bias: Tensor | None = None) -> Tensor:
        """The product `name` of the layer, with its adapters."""
        widths = self.widths[name]
        parts = super().product(x, name, bias).split(list(widths.values()), -1)
        return cat([self._adapted(x, part, own) for part, own in zip(parts, widths, strict=True)], -1)

    def _adapted(self, x: Tensor, part: Tensor, name: str) -> Tensor:
        if not hasattr(self, f"{name}_a"):
            return part
        low = linear(x, getattr(self, f"{name}_a"), None, self.parallel)
        return part + SCALE * linear(low, getattr(self, f"{name}_b"), None, self.parallel)
