"""Compressions: bytes of a parameter on the network, and arguments that are wrong."""

from __future__ import annotations

import pytest

from sim import compression
from sim.errors import OptionError
from tests.builders import model


@pytest.mark.parametrize(
    ("name", "nbytes"),
    [
        ("none", 4.0),
        ("bf16", 2.0),
        ("fp16", 2.0),
        ("int8", 1.001953125),
        ("int4", 0.5009765625),
        ("top-k=1%", 0.08),
        ("top-k=0.5%", 0.04),
        ("powersgd=4", 4 * (6912 + 12288 + 2688) / 371328),  # two word matrices, matrices of two layers, vectors
        ("powersgd=96", 4.0),
    ],
)
def test_bytes_of_a_parameter(name, nbytes):
    assert compression.bytes_per_parameter(name, model(hidden=96)) == pytest.approx(nbytes, rel=1e-12)


def test_all_are_listed_and_none_is_larger_than_full_precision():
    assert compression.names() == ("bf16", "fp16", "int4", "int8", "none", "powersgd", "top-k")
    for name in compression.names():
        argument = compression.REGISTRY.get(name).ARGUMENT
        text = f"{name}={argument}" if argument else name
        assert compression.bytes_per_parameter(text, model()) <= compression.FULL_BYTES


def test_error_feedback_takes_four_bytes():
    assert compression.feedback_bytes("top-k=1%") == 4
    assert compression.feedback_bytes("int8") == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("top-k", "compression 'top-k': write top-k=1%"),
        ("int8=3", "compression 'int8=3': write int8"),
        ("top-k=0%", "write the share of the values that is sent, such as top-k=1%"),
        ("top-k=3", "write the share of the values that is sent, such as top-k=1%"),
        ("powersgd=0", "write the rank, such as powersgd=4"),
        ("zip", "compression 'zip' is unknown; known: bf16, fp16, int4, int8, none, powersgd, top-k"),
    ],
)
def test_wrong_texts(text, why):
    with pytest.raises(OptionError, match=why.replace("(", r"\(")):
        compression.bytes_per_parameter(text, model())
