"""Kernels of layers with adapters, by hand, and what torch keeps of such a layer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.workload.adapter import Adapter
from sim.workload.kernels import Gemm, LayerSharding, Pass
from sim.workload.workload import Workload
from tests import builders

MODEL = builders.model(layers=1, hidden=64, heads=4, kv_heads=2, ffn_hidden=96, mlp="swiglu")
H, KV, F, S = 64, 32, 96, 16


def kernels(adapter: Adapter | None, **sharding: object):
    return Workload(MODEL, 1, S, adapter=adapter).kernels(1, LayerSharding(**sharding))


def kept(adapter: Adapter | None) -> dict[str, float]:
    """Bytes that products keep, by name."""
    found: dict[str, float] = {}
    for one in kernels(adapter):
        if isinstance(one, Gemm):
            found[one.name] = found.get(one.name, 0.0) + one.saved
    return found


def test_products_of_two_adapters() -> None:
    found = [one for one in kernels(Adapter(4, ("q_proj", "v_proj"))) if isinstance(one, Gemm)]
    assert [(one.name, one.m, one.n, one.k, one.frozen) for one in found] == [
        ("qkv", S, H + 2 * KV, H, True),
        ("adapter A", S, 4, H, False),
        ("adapter B", S, H, 4, False),
        ("adapter A", S, 4, H, False),
        ("adapter B", S, KV, 4, False),
        ("projection", S, H, H, True),
        ("up", S, 2 * F, H, True),
        ("down", S, H, F, True),
    ]


def test_inputs_are_kept_where_an_adapter_needs_them() -> None:
    whole = kept(None)
    assert whole == {"qkv": 2 * S * H, "projection": 2 * S * H, "up": 2 * S * H, "down": 2 * S * F}
    few = kept(Adapter(4, ("q_proj", "v_proj")))
    assert few == {"qkv": 2 * S * H, "projection": 2 * S * H, "up": 0, "down": 0, "adapter A": 0, "adapter B": 2 * 2 * S * 4}
    assert kept(Adapter(4, ("down_proj",)))["qkv"] == 0
    every = kept(Adapter(4))
    assert every == whole | {"adapter A": 0, "adapter B": 7 * 2 * S * 4}


def test_both_products_of_an_adapter_are_thin_and_no_other() -> None:
    found = [one for one in kernels(Adapter(4)) if isinstance(one, Gemm)]
    assert {one.name for one in found if one.thin} == {"adapter A", "adapter B"}
    assert all(one.name.startswith("adapter") == one.thin for one in found)


def test_the_sum_moves_five_times_the_outputs() -> None:
    (one,) = (one for one in kernels(Adapter(4, ("k_proj",))) if one.name == "adapter sum")
    assert (one.moved, one.backward) == (5 * 2 * S * KV, 2 * 2 * S * KV + 3 * 2 * S * H)


def test_four_bit_weights_are_written_out_before_each_product() -> None:
    found = kernels(Adapter(4, ("q_proj",), "nf4"))
    before = [(one.name, found[index + 1].name) for index, one in enumerate(found) if one.name == "dequantise"]
    assert before == [("dequantise", name) for name in ("qkv", "projection", "up", "down")]
    first = next(one for one in found if one.name == "dequantise")
    assert isinstance(first, Pass)
    assert first.moved == first.backward == pytest.approx(H * (H + 2 * KV) * (4.126953125 / 8 + 2))


def test_tensor_parallelism_divides_adapters_like_their_base() -> None:
    found = [one for one in kernels(Adapter(4), tp=2) if one.name.startswith("adapter") and isinstance(one, Gemm)]
    assert {(one.name, one.n, one.k) for one in found} == {
        ("adapter A", 4, H), ("adapter B", H // 2, 4), ("adapter B", KV // 2, 4), ("adapter B", F // 2, 4),
        ("adapter A", 4, H // 2), ("adapter A", 4, F // 2), ("adapter B", H, 4),
    }  # fmt: skip
    parameters = sum(one.n * one.k for one in found)
    assert parameters == Adapter(4).layer_parameters(MODEL, 2)


@pytest.mark.parametrize("modules", [("q_proj",), ("q_proj", "down_proj"), ()])
def test_torch_keeps_what_is_counted(modules: tuple[str, ...]) -> None:
    """Two layers, each W x + s B (A x), with W frozen: the input of the first and of those with adapters, and what A gives."""
    torch = pytest.importorskip("torch")
    rows, r, saved = 8, 4, {}
    x = torch.randn(rows, H, requires_grad=True)

    def keep(tensor):
        if tensor.dim() == 2 and tensor.shape[0] == rows:
            saved[tensor.data_ptr()] = tensor.numel()
        return tensor

    def linear(entered, outputs, adapted):
        found = torch.nn.functional.linear(entered, torch.randn(outputs, entered.shape[1]))
        if adapted:
            a, b = (torch.randn(*shape, requires_grad=True) for shape in ((r, entered.shape[1]), (outputs, r)))
            found = found + 2.0 * torch.nn.functional.linear(torch.nn.functional.linear(entered, a), b)
        return found

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        linear(linear(x, F, "q_proj" in modules), H, "down_proj" in modules).sum()
    expected = [rows * H, rows * r] * ("q_proj" in modules) + [rows * F, rows * r] * ("down_proj" in modules)
    assert sorted(saved.values()) == sorted(expected)


def test_other_kernels_stay() -> None:
    """Of an adapted layer without its adapters, only the products differ."""
    own = [one for one in kernels(Adapter(4)) if not one.name.startswith("adapter")]
    assert [replace(one, frozen=False) if isinstance(one, Gemm) else one for one in own] == list(kernels(None))
