"""Codes of vectors: their bytes are those of `sim.compression`, and what they lose is what they say."""

from __future__ import annotations

import pytest

from sim import compression
from sim.errors import OptionError
from sim.workload.model import Model

torch = pytest.importorskip("torch")

from holmes_sim.torch_backend import compressors  # noqa: E402
from holmes_sim.torch_backend.compressors import codec  # noqa: E402

GPT = Model("gpt", layers=2, hidden=256, heads=4, kv_heads=4, ffn_hidden=1024, vocab=512, learned_positions=64)


def test_every_compression_can_be_executed() -> None:
    assert compressors.REGISTRY.names == compression.names()


@pytest.mark.parametrize(
    ("name", "nbytes"),
    [("none", 3_276_800), ("bf16", 1_638_400), ("fp16", 1_638_400), ("int8", 820_800), ("int4", 410_400), ("top-k=1%", 65_536)],
)
def test_bytes_of_819200_values_are_those_of_the_simulator(name: str, nbytes: int) -> None:
    values = torch.randn(819_200, generator=torch.Generator().manual_seed(0))
    found = codec(name)
    assert found is not None
    assert found.encode(values).nbytes == found.nbytes(819_200) == nbytes
    assert nbytes == pytest.approx(compression.bytes_per_parameter(name, GPT) * 819_200)


@pytest.mark.parametrize("count", [1, 2, 4095, 4097])
@pytest.mark.parametrize("name", ["none", "bf16", "fp16", "int8", "int4", "top-k=100%"])
def test_any_number_of_values_has_the_bytes_that_the_receiver_expects(name: str, count: int) -> None:
    found, values = codec(name), torch.linspace(-1, 1, count)
    assert found is not None
    code = found.encode(values)
    assert (code.dtype, code.numel()) == (torch.uint8, found.nbytes(count))
    torch.testing.assert_close(found.decode(code, count), values, rtol=0.34, atol=0.01)


@pytest.mark.parametrize(
    ("name", "values", "decoded"),
    [
        ("bf16", [1.0, 1.00390625], [1.0, 1.0]),
        ("fp16", [1.0, 1.00390625], [1.0, 1.00390625]),
        ("int8", [-1.0, 0.001, 1.55], [-1.0, 0.0, 1.55]),
        ("int8", [3.0, 3.0], [3.0, 3.0]),
        ("int4", [1.0, -0.5, 0.3, 0.38, 0.01, 0.007], [1.0, -0.5, 0.25, 0.5, 0.015625, 0.0]),
        ("int4", [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        ("top-k=34%", [0.1, -3.0, 2.0], [0.0, -3.0, 0.0]),
    ],
)
def test_values_after_the_code(name: str, values: list[float], decoded: list[float]) -> None:
    found = codec(name)
    assert found is not None
    assert found.decode(found.encode(torch.tensor(values)), len(values)).tolist() == pytest.approx(decoded, abs=1e-6)


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(OptionError, match="write the rank"):
        codec("powersgd=zero")
    with pytest.raises(OptionError, match="write int8"):
        codec("int8=4")
