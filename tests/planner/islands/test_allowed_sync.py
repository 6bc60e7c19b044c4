"""The text of --sync: what it allows, and texts that are wrong."""

from __future__ import annotations

import pytest

from planner.islands.allowed_sync import parse
from sim.errors import OptionError
from sim.sync import Sync
from tests.builders import model

FAMILY = ("adaptive-sgd", "co2", "diloco", "local-sgd", "streaming-diloco")


@pytest.mark.parametrize(
    ("text", "names", "steps", "compressions", "exact"),
    [
        ("exact", (), (), (), True),
        ("any", ("adaptive-sgd", "co2", "diloco", "every-step", "local-sgd", "streaming-diloco"),
         (2, 4, 8, 16, 30, 64, 100), ("none", "bf16", "int8"), True),
        ("local-steps<=64", FAMILY, (2, 4, 8, 16, 30, 64), ("none", "bf16", "int8"), True),
        ("diloco<=10", ("diloco",), (2, 4, 8, 10), ("none", "bf16", "int8"), True),
        ("diloco=100,int8", ("diloco",), (100,), ("int8",), False),
        ("every-step,top-k=1%", ("every-step",), (2, 4, 8, 16, 30, 64, 100), ("top-k=1%",), False),
        ("independent", ("independent",), (2, 4, 8, 16, 30, 64, 100), ("none", "bf16", "int8"), False),
    ],
)  # fmt: skip
def test_what_a_text_allows(text, names, steps, compressions, exact):
    found = parse(text)
    assert (found.names, found.steps, found.compressions, found.exact) == (names, steps, compressions, exact)


def test_a_plan_without_islands_has_no_aggregation():
    assert parse("diloco<=10").exact
    for text in ("diloco<=10,median", "local-steps,int8,krum", "any,flag"):
        found = parse(text)
        assert (found.exact, found.messages) == (False, ())


def test_settings_of_a_model():
    assert list(parse("independent").settings(model(12))) == [Sync("independent")]
    assert list(parse("every-step,top-k=1%").settings(model(12))) == [Sync("every-step", compression="top-k=1%")]
    assert list(parse("streaming-diloco=8,int8").settings(model(12))) == [Sync("streaming-diloco", 8, 1, 4, "int8")]
    assert list(parse("streaming-diloco=2,int8").settings(model(12))) == [Sync("streaming-diloco", 2, 1, 2, "int8")]
    assert list(parse("diloco=9,median").settings(model(12))) == [
        Sync("diloco", 9, compression=code, aggregation="median") for code in ("none", "bf16", "int8")
    ]
    assert list(parse("every-step,krum,bf16").settings(model(12))) == [
        Sync("every-step", compression="bf16", aggregation="krum")
    ]
    assert list(parse("independent,krum").settings(model(12))) == [Sync("independent")]
    assert len(list(parse("any").settings(model(12)))) == 5 * 7 * 3 + 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("dilco", "dilco is unknown; known: exact, any, local-steps, adaptive-sgd"),
        ("exact<=3", "exact takes no number and one compression, that of messages between clusters"),
        ("every-step=3", "every-step takes no number of steps"),
        ("diloco=0", "at least 1 inner step is needed"),
        ("diloco<3", "it is not understood"),
        ("diloco,zip", "zip is neither a compression nor an aggregation; known: bf16, "),
        ("diloco,int8,medain", "medain is neither a compression nor an aggregation; known: bf16, "),
        ("diloco,krum,median", "one compression and one aggregation at most"),
        ("diloco,int8,bf16", "one compression and one aggregation at most"),
        ("exact,median", "compression 'median' is unknown; known: adaptive-top-k, int4, int8, "),
        ("diloco,int8,median,krum", "it is not understood"),
        ("diloco,top-k", "compression 'top-k': write top-k=1%"),
    ],
)
def test_wrong_texts(text, why):
    with pytest.raises(OptionError) as error:
        parse(text)
    assert why in str(error.value)
