"""Compressions of messages between clusters, and what each use has."""

from __future__ import annotations

import pytest

from sim import compression
from sim.compression import EXCHANGES, MESSAGES, Code
from sim.errors import OptionError


def test_messages_have_compressions_of_their_own():
    assert compression.names(MESSAGES) == ("adaptive-top-k", "int4", "int8", "none", "top-k")


@pytest.mark.parametrize(
    ("text", "slowness", "code"),
    [
        ("none", 1.0, Code(2, 0.0, 0.0)),
        ("int8", 1.0, Code(1.001953125, 5, 3)),
        ("int4", 0.5, Code(0.5009765625, 4.5, 2.5)),
        ("top-k=10%", 0.5, Code(0.6, 2.6, 2.8)),
        ("top-k=50%", 1.0, Code(2, 0.0, 0.0)),  # 3 bytes a value, with positions
        ("adaptive-top-k=10%", 1.0, Code(0.6, 2.6, 2.8)),
        ("adaptive-top-k=10%", 0.5, Code(1.2, 3.2, 3.6)),
        ("adaptive-top-k=10%", 0.25, Code(2, 0.0, 0.0)),  # a share of 40 % has 2.4 bytes a value
    ],
)
def test_how_a_message_of_bf16_values_is_written(text, slowness, code):
    assert compression.code(text, 2, slowness) == pytest.approx(code)


FOR_EXCHANGES, FOR_MESSAGES = "bf16, fp16, int4, int8, none, powersgd, top-k", "adaptive-top-k, int4, int8, none, top-k"


@pytest.mark.parametrize(
    ("text", "use", "message"),
    [
        ("zip", EXCHANGES, f"compression 'zip' is unknown; known: {FOR_EXCHANGES}"),
        ("adaptive-top-k=1%", EXCHANGES, f"compression 'adaptive-top-k' is not for {EXCHANGES}; known: {FOR_EXCHANGES}"),
        ("bf16", MESSAGES, f"compression 'bf16' is not for {MESSAGES}; known: {FOR_MESSAGES}"),
        ("top-k", MESSAGES, "compression 'top-k': write top-k=1%"),
        ("int8=3", MESSAGES, "compression 'int8=3': write int8"),
    ],
)
def test_a_wrong_compression_is_one_line(text, use, message):
    with pytest.raises(OptionError) as error:
        compression.get(text, use)
    assert str(error.value) == message
