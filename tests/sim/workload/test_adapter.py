"""Adapters: their parameters against published counts, and what is refused."""

from __future__ import annotations

import pytest

from sim.formats import catalog
from sim.workload.adapter import BASE_BYTES, PRODUCTS, Adapter
from sim.workload.workload import Workload
from tests import builders

LLAMA = catalog.model("llama-2-7b")
ALL = tuple(PRODUCTS)


@pytest.mark.parametrize(
    ("r", "modules", "parameters"),
    [
        (8, ("q_proj", "v_proj"), 4_194_304),  # torchtune 14b59e7a, docs/source/tutorials/lora_finetune.rst
        (16, ("q_proj", "k_proj", "v_proj", "o_proj"), 16_777_216),  # 16 x 2 x 4096 x 4 x 32
        (16, ALL, 39_976_960),  # torchtitan 0.3.0: components/lora.py on the exported module, counted on the meta device
        (64, ALL, 159_907_840),
    ],
)
def test_parameters_of_llama_2_7b(r: int, modules: tuple[str, ...], parameters: int) -> None:
    assert LLAMA.layers * Adapter(r, modules).layer_parameters(LLAMA) == parameters


def test_a_model_without_a_gate_has_no_adapter_of_one() -> None:
    gelu = builders.model(hidden=96)
    assert gelu.mlp == "gelu"
    assert {name for name, *_ in Adapter(4).modules(gelu)} == set(PRODUCTS) - {"gate_proj"}
    with pytest.raises(ValueError, match=r"adapter\.target_modules gate_proj: model tiny has an MLP without a gate; up_proj"):
        Workload(gelu, 8, 128, adapter=Adapter(4, ("gate_proj",)))


def test_nf4_takes_the_bits_of_the_paper() -> None:
    """arXiv 2305.14314, section 3: 32 / 64 = 0.5 bits of scales a parameter become 8 / 64 + 32 / (64 x 256) = 0.127."""
    assert 8 * BASE_BYTES["nf4"] == pytest.approx(4.127, abs=5e-4)
    assert Adapter(4, base_precision="nf4").base_bytes(2) == BASE_BYTES["nf4"]
    assert Adapter(4).base_bytes(2) == 2.0


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"r": 0}, "adapter.r must be at least 1, not 0"),
        ({"r": 4, "target_modules": ()}, "adapter.target_modules is empty; write all-linear, or some of q_proj"),
        ({"r": 4, "target_modules": ("wq",)}, "adapter.target_modules 'wq' is unknown; known: all-linear, q_proj, k_proj"),
        ({"r": 4, "target_modules": ("q_proj", "q_proj")}, "names a module twice"),
        ({"r": 4, "base_precision": "int8"}, "adapter.base_precision 'int8' is unknown; known: nf4, or leave it out"),
    ],
)
def test_wrong_values_are_one_line(values: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Adapter(**values)


@pytest.mark.parametrize(
    ("facts", "precision", "text"),
    [
        ({"experts": 4, "experts_per_token": 2}, "bf16", "model tiny has experts"),
        ({"mtp_layers": 1}, "bf16", "model tiny has mla or mtp_layers"),
        ({}, "fp8", "adapter with precision fp8 is not modelled"),
    ],
)
def test_what_is_not_modelled_is_refused(facts: dict[str, object], precision: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Workload(builders.model(**facts), 8, 128, precision, adapter=Adapter(4))


def test_model_flops_leave_out_gradients_of_frozen_weights() -> None:
    """Of a token: 6 FLOPs a parameter become 4, and 6 for each trained one; attention as before."""
    model = builders.model(layers=3, hidden=96, mlp="swiglu", tied_embeddings=False)
    whole, own = Workload(model, 2, 64), Workload(model, 2, 64, adapter=Adapter(8))
    products = model.layers * model.linear_parameters + model.vocab * model.hidden
    trained = model.layers * Adapter(8).layer_parameters(model)
    assert whole.flops - own.flops == pytest.approx(2 * 64 * (2 * products - 6 * trained))
