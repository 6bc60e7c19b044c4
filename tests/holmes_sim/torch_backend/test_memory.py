"""What a layer keeps for its backward, against the facts of this backend's stack."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from holmes_sim.torch_backend.blocks import Layer
from holmes_sim.torch_backend.tensor_parallel import TensorParallel
from sim.formats import catalog
from sim.kernels import memory
from sim.plan.parallel_config import ParallelConfig
from sim.workload.model import Model
from sim.workload.workload import Workload

SEQUENCES, TOKENS = 2, 128
LLAMA = Model("llama", 2, 256, 4, 4, 704, 1024, mlp="swiglu", tied_embeddings=False)
GROUPED = Model("grouped", 2, 256, 8, 2, 704, 1024, mlp="swiglu", tied_embeddings=False)
GPT = Model("gpt", 2, 256, 4, 4, 1024, 1024, learned_positions=TOKENS)


def kept(model: Model) -> int:
    """Bytes of the memory, beside the weights, that the tensors kept by a layer in bf16 lie in."""
    layer = Layer(model, TensorParallel(), seed=0, index=0, recompute="none").to(torch.bfloat16)
    weights = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    found: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = layer(torch.randn(TOKENS, SEQUENCES, model.hidden, dtype=torch.bfloat16, requires_grad=True))
    assert out.requires_grad
    return sum(storage.nbytes() for address, storage in found.items() if address not in weights)


@pytest.mark.parametrize(
    ("model", "masks"), [(LLAMA, 0), (GROUPED, 0), (GPT, 2)], ids=lambda value: str(getattr(value, "name", value))
)
def test_a_layer_keeps_what_the_stack_says(model: Model, masks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the masks of dropout, which this backend has not, and small statistics. A GPU has RMSNorm in one kernel, which
    keeps its input; on a CPU torch makes it of several, so that a LayerNorm stands in for it."""
    monkeypatch.setattr(
        functional, "rms_norm", lambda x, width, weight, eps: functional.layer_norm(x, width, weight, None, eps)
    )
    workload = Workload(model, SEQUENCES, TOKENS, "bf16")
    facts = catalog.stack_facts("torch-backend-2026").stack().memory
    predicted, _ = memory.layer_activation_bytes(workload, ParallelConfig(microbatch_size=SEQUENCES, memory=facts))
    predicted -= masks * SEQUENCES * TOKENS * model.hidden
    assert kept(model) == pytest.approx(predicted, rel=0.015)
