"""What a layer keeps for its backward, against the facts of this backend's stack."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from holmes_sim.torch_backend import discarded
from holmes_sim.torch_backend.blocks import Layer
from holmes_sim.torch_backend.experts import ExpertLayer
from holmes_sim.torch_backend.tensor_parallel import TensorParallel
from sim.formats import catalog
from sim.kernels import memory
from sim.plan.parallel_config import ParallelConfig
from sim.workload.model import Model
from sim.workload.workload import Workload

SEQUENCES, TOKENS = 2, 128
LLAMA = Model("llama", 2, 256, 4, 4, 704, 1024, mlp="swiglu", tied_embeddings=False)
GROUPED = Model("grouped", 2, 256, 8, 2, 704, 1024, mlp="swiglu", tied_embeddings=False)
EXPERTS = Model(
    "experts", 2, 256, 4, 4, 352, 1024, mlp="swiglu", tied_embeddings=False, experts=4, experts_per_token=2,
    shared_ffn_hidden=352,
)  # fmt: skip
GPT = Model("gpt", 2, 256, 4, 4, 1024, 1024, learned_positions=TOKENS)


def kept(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes of the memory, beside the weights, that the tensors kept by a layer in bf16 lie in."""
    hooks, found = torch.autograd.graph.saved_tensors_hooks, dict[int, torch.UntypedStorage]()

    def seen(kept: object) -> object:
        if isinstance(kept, torch.Tensor):
            storage = kept.untyped_storage()
            found[storage.data_ptr()] = storage
        return kept

    def inner(pack: Callable[[torch.Tensor], object], unpack: Callable[[object], torch.Tensor]) -> hooks:
        return hooks(lambda tensor: seen(pack(tensor)), unpack)

    monkeypatch.setattr(discarded, "saved_tensors_hooks", inner)
    weights = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    with hooks(seen, lambda tensor: tensor):
        out = layer(torch.randn(TOKENS, SEQUENCES, layer.model.hidden, dtype=torch.bfloat16, requires_grad=True))
    assert out.requires_grad
    return sum(storage.nbytes() for address, storage in found.items() if address not in weights)


def predicted(model: Model, **config: object) -> float:
    """Bytes that the stack of this backend says a layer keeps."""
    facts = catalog.stack_facts("torch-backend-2026").stack().memory
    chosen = ParallelConfig(microbatch_size=SEQUENCES, memory=facts, **config)  # type: ignore[arg-type]
    return memory.layer_activation_bytes(Workload(model, SEQUENCES, TOKENS, "bf16"), chosen)[0]


@pytest.fixture
def _norms_in_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU has RMSNorm in one kernel, which keeps its input; on a CPU torch makes it of several, so that a LayerNorm stands in
    for it."""
    monkeypatch.setattr(
        functional, "rms_norm", lambda x, width, weight, eps: functional.layer_norm(x, width, weight, None, eps)
    )


@pytest.mark.parametrize(
    ("model", "masks"), [(LLAMA, 0), (GROUPED, 0), (GPT, 2)], ids=lambda value: str(getattr(value, "name", value))
)
@pytest.mark.usefixtures("_norms_in_one_kernel")
def test_a_layer_keeps_what_the_stack_says(model: Model, masks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the masks of dropout, which this backend has not, and small statistics."""
    layer = Layer(model, TensorParallel(), seed=0, index=0, recompute="none").to(torch.bfloat16)
    expected = predicted(model) - masks * SEQUENCES * TOKENS * model.hidden
    assert kept(layer, monkeypatch) == pytest.approx(expected, rel=0.015)


FREED = [
    *((LLAMA, "layernorm"), (GROUPED, "layernorm+mlp"), (GPT, "mlp")),
    *((EXPERTS, name) for name in ("layernorm", "moe_act", "layernorm+moe_act")),
]


@pytest.mark.parametrize(("model", "modules"), FREED, ids=lambda value: str(getattr(value, "name", value)))
@pytest.mark.usefixtures("_norms_in_one_kernel")
def test_recomputed_modules_free_what_the_model_says(model: Model, modules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = ExpertLayer if model.experts else Layer
    whole, less = (
        kept(kind(model, TensorParallel(), 0, 0, again).to(torch.bfloat16), monkeypatch) for again in ("none", modules)
    )
    again = tuple(modules.split("+"))
    freed = predicted(model) - predicted(model, recompute="selective", recompute_modules=again)
    assert whole - less == pytest.approx(freed, rel=0.02)


@pytest.mark.usefixtures("_norms_in_one_kernel")
@pytest.mark.parametrize("modules", ["moe", "layernorm+moe"])
def test_a_layer_whose_experts_are_recomputed_keeps_what_the_stack_says(modules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without recomputation this backend keeps more of experts than the stack says: sent rows, and their results."""
    layer = ExpertLayer(EXPERTS, TensorParallel(), 0, 0, modules).to(torch.bfloat16)
    expected = predicted(EXPERTS, recompute="selective", recompute_modules=tuple(modules.split("+")))
    assert kept(layer, monkeypatch) == pytest.approx(expected, rel=0.02)
